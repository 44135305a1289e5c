// The rules of an op that was described at run time: expressions of the spec (ops_spec/README.md),
// parsed once and evaluated for each frame.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/operator.h"
#include "ops_spec/dims.hpp"

namespace bp::core {

// What an expression may name.
struct RuleArgument {
  std::string_view name;
  bp_argument_kind kind = 0;
  uint32_t offset = 0;
  std::span<const char* const> values;  // Of an enumeration.
  uint32_t first_value = 0;
};

constexpr bool is_list_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_TENSOR_LIST || kind == BP_ARGUMENT_OUT_LIST ||
         kind == BP_ARGUMENT_INOUT_LIST || kind == BP_ARGUMENT_I64_LIST;
}
constexpr bool is_tensor_kind(bp_argument_kind kind) { return kind <= BP_ARGUMENT_SCALAR_TENSOR; }
constexpr bool is_output_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OUT || kind == BP_ARGUMENT_OPTIONAL_OUT ||
         kind == BP_ARGUMENT_OUT_LIST;
}
constexpr bool is_inout_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_INOUT || kind == BP_ARGUMENT_INOUT_LIST;
}
constexpr bool is_written_kind(bp_argument_kind kind) {
  return is_output_kind(kind) || is_inout_kind(kind);
}
constexpr bool has_scalar_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OPERAND || kind == BP_ARGUMENT_SCALAR_TENSOR;
}

enum class RuleType : uint8_t { number, dims, real, dtype };

constexpr const char* name_of(RuleType type) {
  return type == RuleType::number ? "a whole number"
         : type == RuleType::dims ? "a shape"
         : type == RuleType::real ? "a number"
                                  : "a dtype";
}

// A whole number or a dtype, a list of numbers that is a shape, or a number with a fraction. What
// does not exist is dims::kNone; the `number` of one with a fraction says whether it exists.
struct RuleValue {
  int64_t number = dims::kNone;
  double real = 0;
  dims::Dims list;
};

// One parsed expression.
class Rule {
 public:
  // Parses `text`. Returns "" and sets `out_rule`, or returns what is wrong and where. The rule
  // keeps no reference to its arguments.
  static std::string parse(std::string_view text, std::span<const RuleArgument> arguments,
                           Rule& out_rule);

  // Returns a rule whose value is always `number`.
  static Rule of_number(int64_t number) {
    Rule rule;
    rule.nodes_.push_back({.op = Op::constant, .number = number});
    return rule;
  }

  // Sets the text of a rule that stands in a formula.
  void set_text(std::string_view text) { text_ = text; }

  bool is_given() const { return !nodes_.empty(); }
  RuleType type() const { return nodes_.back().type; }
  const char* text() const { return text_.c_str(); }
  uint32_t names() const { return names_; }  // Bit i: the rule reads argument i.

  // Evaluates the rule for a frame whose tensors are sound. `item` is the place in its list of the
  // tensor for which the rule is.
  RuleValue evaluate(const void* frame, uint64_t item = 0) const;

 private:
  friend class RuleParser;

  enum class Op : uint8_t {
    constant,
    attribute,
    shape,
    rank,
    count,
    numel,
    dtype,
    accumulator,
    is_integer,
    is_quantized,
    is_given,
    list,
    index,
    slice,
    add,
    subtract,
    multiply,
    divide,
    modulo,
    negate,
    minimum,
    maximum,
    equal,
    unequal,
    less,
    less_equal,
    both,
    either,
    condition,
    broadcast,
    reduced,
    blocks,
    window,
    covered,
  };

  struct Node {
    Op op = Op::constant;
    RuleType type = RuleType::number;
    bp_argument_kind kind = 0;  // Of the argument that the node reads.
    uint32_t offset = 0;        // Its place in the frame.
    int64_t number = 0;
    double real = 0;
    std::vector<uint32_t> inputs{};  // Earlier nodes.
  };

  static RuleValue read(const Node& node, const void* frame, uint64_t item);
  RuleValue real_input(const Node& node, size_t i, const void* frame, uint64_t item) const;
  RuleValue calculate(const Node& node, const void* frame, uint64_t item) const;
  bool compare(const Node& node, const void* frame, uint64_t item) const;
  RuleValue count(const Node& node, const void* frame, uint64_t item) const;
  RuleValue shape(const Node& node, const void* frame, uint64_t item) const;

  RuleValue evaluate(const Node& node, const void* frame, uint64_t item) const;

  std::string text_;
  uint32_t names_ = 0;
  std::vector<Node> nodes_;  // Each after its inputs; the last one is the result.
};

}  // namespace bp::core
