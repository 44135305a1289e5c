// The rules of the spec for a call, read a second time: which rules a frame breaks, and what its
// outputs must be. The table is made from ops_spec/ops (emit_spec_rules.py). The suite evaluates it
// by code of its own, so that the checks of the host are not compared with themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct SpecRule {
  const char* argument;  // "" if the rule is about several arguments.
  bool is_of_tensor;     // The rule holds for each tensor that stands for the argument.
  const char* kind;      // dtype, rank, shape, count, bound, values, distinct, output or requires.
  const char* text;      // The text of the rule in the spec.
  const char* program;   // The rule in the words of emit_spec_rules.py.
};

struct SpecOutput {
  const char* argument;
  const char* shape;  // A program; "" if the caller chooses the shape.
  const char* dtype;  // A program; "" if the caller chooses the dtype.
};

struct SpecOp {
  std::span<const SpecRule> rules;
  std::span<const SpecOutput> outputs;
  const char* flops = "";      // A program; "" if the op is no product.
  const char* looked_up = "";  // The argument that is read by index; "" if there is none.
};

// Returns generated rules. There are no rules and no outputs if there is no such op.
SpecOp spec_of(uint32_t op);

// Evaluates the rules of one op on frames.
class SpecJudge {
 public:
  struct Output {
    std::string_view argument;
    bp_dtype dtype;
    Shape shape;
    bool is_given;  // The caller chooses the shape, which is then empty here.
  };

  // Throws std::invalid_argument if a program has a word that is not known.
  explicit SpecJudge(uint32_t op);
  ~SpecJudge();

  std::span<const SpecRule> rules() const { return spec_.rules; }

  // A rule that does not hold, by its index, and the tensor of a list that breaks it.
  struct Breach {
    size_t rule;
    size_t item;
  };

  // Returns the broken rules in the order of the table.
  std::vector<Breach> breaches(const Frame& frame) const;

  // Returns what a rule "this == that" requires: a shape, or one number. Returns nothing for other
  // rules, or if there is no such value.
  std::optional<Shape> wanted(const Frame& frame, const Breach& breach) const;

  // Returns the outputs for a frame that breaks no rule.
  std::vector<Output> outputs(const Frame& frame) const;

  // Returns the multiplications and additions of a product; 0 for other ops. Throws
  // std::invalid_argument for a frame that breaks a rule on which they depend.
  double flops(const Frame& frame) const;
  std::string_view looked_up() const { return spec_.looked_up; }

 private:
  struct Programs;

  uint32_t op_;
  SpecOp spec_;
  std::unique_ptr<const Programs> programs_;
};

}  // namespace bp::conformance
