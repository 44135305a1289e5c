// The formulas of an op that was described at run time (ops_spec/README.md): the op as calls of
// other ops. A description has them as text, which is parsed once.
//
// An earlier line is an argument like those of the op: its value has a place behind the end of the
// frame. A run copies the frame into a larger one (services/formula_run.cpp), so that expressions
// and calls read both alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/operator.h"
#include "registry/calls/op_rules.hpp"

namespace bp::core {

// What one argument of a called op is given.
struct FormulaInput {
  enum class Source : uint8_t {
    tensor,   // inputs[index] of the call.
    tensors,  // `count` of the inputs, from inputs[index] on, for an argument that is a list.
    list,     // The list of tensors at `offset` of the frame, as it is.
    value,    // `value`, which is an inline scalar where the argument may be one.
    operand,  // The tensor or scalar at `offset` of the frame, as it is.
  };
  const bp_op_argument* argument = nullptr;  // Of the called op.
  Source source = Source::tensor;
  uint32_t index = 0, count = 0;
  uint32_t offset = 0;
  Rule value;
};

// A call of another op, which stands for its first output.
struct FormulaCall {
  const bp_op_desc* desc = nullptr;
  uint32_t frame_size_bytes = 0;
  const bp_op_argument* output = nullptr;
  std::vector<FormulaInput> inputs;
  Rule dtype, shape;  // What is chosen of the output, if anything.
};

// A tensor: a name, a tensor of a list, a choice of two, a view, or a call.
struct FormulaTensor {
  enum class Kind : uint8_t {
    name,
    present,  // The tensor of a list that a line for a list runs for.
    item,     // The tensor of a list at `index`.
    choice,
    call,
    reshape,
    expand,
    permute,
    transpose,
    slice
  };
  Kind kind = Kind::name;
  uint32_t offset = 0;           // Of a name or a list: the place of the pointer in the frame.
  Rule index;                    // Of an item.
  Rule condition;                // Of a choice.
  std::vector<Rule> parameters;  // Of a view.
  FormulaCall call;
  std::vector<FormulaTensor> inputs;  // Of a choice: both; of a view: one; of a call: those given.
};

// One line: it gives the argument at `offset` a value. A line for a list runs for each tensor of
// the list.
struct FormulaLine {
  uint32_t number = 0;  // In the text.
  std::string name;
  bp_argument_kind kind = 0;  // A tensor, what the op writes, I64, F64 or I64_LIST.
  uint32_t offset = 0;
  bool may_alias = false;  // An output that may be the memory of an input.
  Rule value;              // If the line is no tensor.
  FormulaTensor tensor;
};

// Tensors that the op reads.
struct FormulaRead {
  uint32_t offset = 0;
  bool is_list = false;
};

struct Formula {
  std::vector<FormulaLine> lines;
  Rule condition;                    // Which calls the formula serves; all if it is not given.
  std::string refusal;               // What is said of the other calls.
  std::vector<uint32_t> called_ops;  // Those that were described at run time.
  std::vector<FormulaRead> inputs;
  uint32_t frame_size_bytes = 0;  // Of the op, in the revision of the formula.
  uint32_t run_size_bytes = 0;    // With the values of the lines.
  uint32_t revision = 0;
};

// The op whose formulas are parsed.
struct FormulaSubject {
  std::string_view name;  // "vendor.op".
  std::span<const bp_op_argument> arguments;
  uint32_t since = 0;
  uint32_t revision = 0;  // The formulas know what came up to it.
  uint32_t frame_size_bytes = 0;
};

// Parses a decomposition, which gives everything that the op writes a value. Returns "" and sets
// `out_formula`, or returns what is wrong, with the line and the word.
std::string parse_decomposition(const FormulaSubject& subject, std::string_view text,
                                Formula& out_formula);

// Parses the condition of a decomposition into `formula`. Returns what is wrong, or "".
std::string parse_condition(const FormulaSubject& subject, const char* text, Formula& formula);

// Checks the gradients of an op, which may be "none: REASON", the name of an op, or formulas. Sets
// the called ops of `out_formula`. Returns what is wrong, or "".
std::string check_backward(const FormulaSubject& subject, std::string_view text,
                           Formula& out_formula);

}  // namespace bp::core
