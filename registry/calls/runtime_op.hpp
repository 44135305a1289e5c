// The description of one op that was described at run time, as the host keeps it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backplane/operator.h"
#include "ops_spec/checks.hpp"
#include "registry/calls/formula.hpp"
#include "registry/calls/frame_words.hpp"
#include "registry/calls/op_rows.hpp"
#include "registry/calls/op_rules.hpp"

namespace bp::core {

struct RuntimeOp;

// Limits of an op that is described at run time.
inline constexpr uint32_t kMaxRuntimeArguments = 32;
inline constexpr uint32_t kMaxRuntimeFrameBytes = ops::kMaxFrameBytes;

enum class DtypeRule : uint8_t { none, fixed, like, accumulator, sum, free };

// What the checks of a frame ask of one argument.
struct RuntimeArgument {
  DtypeRule dtype_rule = DtypeRule::none;
  DtypeRule default_rule = DtypeRule::none;  // Of a free output whose caller chooses no dtype.
  std::vector<bp_dtype> dtypes;              // Allowed, or the one that is fixed.
  bp_dtype default_dtype = 0;
  uint32_t other = 0, default_other = 0;  // The arguments that the rules name.
  bool is_given = false;                  // The caller chooses the shape.
  Rule shape, count, at_least, at_most, below, rank;
  int64_t min_rank = 0, max_rank = BP_MAX_RANK;
  bool has_number_bounds = false;  // Of a double: the bounds are numbers.
  double least = 0, most = 0, less_than = 0;
};

// A row for the checks of ops_spec that leads back to the description.
struct RuntimeCheck : ops::Row {
  const RuntimeOp* owner = nullptr;
};

struct RuntimeOp final : OpRow {
  RuntimeOp() = default;
  RuntimeOp(const RuntimeOp&) = delete;

  bp_op_desc desc{};                       // What readers get. It points to the members below.
  std::vector<bp_op_argument> described;   // The arguments of `desc`.
  std::vector<RuntimeArgument> arguments;  // The same, for the checks.
  std::vector<uint32_t> dtype_order;       // Each argument after the one that it is like.
  std::vector<FrameMember> members;
  std::vector<LaterValue> later;
  std::vector<ops::Argument> check_arguments;
  RuntimeCheck check{};
  std::deque<std::string> texts;  // What the names and rules point to.
  std::deque<std::vector<const char*>> lists;
  std::deque<std::vector<uint32_t>> numbers;
  std::unique_ptr<const Formula> formula;  // NULL without a decomposition.
  bool infers = false;                     // The shapes come from the infer() of an owner.
};

// Reads a description. Returns NULL and says in `out_refusal` what is wrong.
std::unique_ptr<RuntimeOp> read_runtime_op(const bp_op_desc& theirs, std::string& out_refusal);

// Returns "" if `longer` extends `shorter` as frames grow (api/docs/versioning.md), else how the
// two differ.
std::string extension_defect(const RuntimeOp& shorter, const RuntimeOp& longer);

// Checks the inputs of a frame and infers its outputs.
bp_status infer_runtime_op(const ops::Row& row, const void* frame, bp_op_output* out_outputs);

}  // namespace bp::core
