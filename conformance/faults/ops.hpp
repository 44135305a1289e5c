// The ops and the members of their frames, as faults see them. A plugin has no other table of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backplane/ops.h"
#include "conformance/faults/fault.hpp"

namespace bp::faults {

struct Member {
  std::string_view name;
  std::string_view kind;   // The kind as in ops.def: tensor, out, operand, f64, ...
  std::string_view dtype;  // The dtype rule: "like(a)", "float", ...
  size_t offset;

  bool is_output() const { return kind.starts_with("out") || kind.starts_with("inout"); }
  bool is_input() const;
  bool is_list() const { return kind.ends_with("_list") && kind != "i64_list"; }
  bool has_scalar() const { return kind == "operand" || kind == "scalar_tensor"; }
};

struct Op {
  uint32_t id;
  std::string_view name;
  std::string_view error_class;  // The class of conformance/docs/error_classes.md.
  size_t frame_size_bytes;
  std::vector<Member> members;

  // Returns whether a fault of this kind can change a result of the op. Whether it has the dtypes
  // is not asked.
  bool can_have(const KindOfFault& kind) const;
  // Returns whether a call of the op can fit the condition.
  bool can_meet(std::string_view condition) const;
};

const std::vector<Op>& ops();

// Return NULL if there is no such op.
const Op* find_op(uint32_t id);
const Op* find_op(std::string_view name);

// One tensor of a frame.
struct Argument {
  const Member* member;
  const bp_tensor* tensor;
};

// Returns the tensors that the frame `args` gives, those of lists too.
std::vector<Argument> tensors_of(const Op& op, const void* args);

}  // namespace bp::faults
