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

enum class RuleType : uint8_t { number, dims };

// A number, or a list of numbers that is a shape. What does not exist is dims::kNone.
struct RuleValue {
  int64_t number = dims::kNone;
  dims::Dims list;
};

// One parsed expression.
class Rule {
 public:
  // Parses `text`. Returns "" and sets `out_rule`, or returns what is wrong and where. The rule
  // keeps no reference to its arguments.
  static std::string parse(std::string_view text, std::span<const RuleArgument> arguments,
                           Rule& out_rule);

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
    window,
  };

  struct Node {
    Op op = Op::constant;
    RuleType type = RuleType::number;
    bp_argument_kind kind = 0;  // Of the argument that the node reads.
    uint32_t offset = 0;        // Its place in the frame.
    int64_t number = 0;
    std::vector<uint32_t> inputs{};  // Earlier nodes.
  };

  RuleValue evaluate(const Node& node, const void* frame, uint64_t item) const;

  std::string text_;
  uint32_t names_ = 0;
  std::vector<Node> nodes_;  // Each after its inputs; the last one is the result.
};

}  // namespace bp::core
