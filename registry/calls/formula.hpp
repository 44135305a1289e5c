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
    value,    // `value`, which is an inline scalar where the argument may be one.
    operand,  // The tensor or scalar at `offset` of the frame, as it is.
  };
  const bp_op_argument* argument = nullptr;  // Of the called op.
  Source source = Source::tensor;
  uint32_t index = 0;
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

// A tensor: a name, a choice of two, a view, or a call.
struct FormulaTensor {
  enum class Kind : uint8_t { name, choice, call, reshape, expand, permute, transpose, slice };
  Kind kind = Kind::name;
  uint32_t offset = 0;           // A name: the place of the pointer in the frame.
  Rule condition;                // Of a choice.
  std::vector<Rule> parameters;  // Of a view.
  FormulaCall call;
  std::vector<FormulaTensor> inputs;  // Of a choice: both; of a view: one; of a call: those given.
};

// One line: it gives the argument at `offset` a value.
struct FormulaLine {
  uint32_t number = 0;  // In the text.
  std::string name;
  bp_argument_kind kind = 0;  // A tensor, an output of the op, I64, F64 or I64_LIST.
  uint32_t offset = 0;
  bool may_alias = false;  // An output that may be the memory of an input.
  Rule value;              // If the line is no tensor.
  FormulaTensor tensor;
};

struct Formula {
  std::vector<FormulaLine> lines;
  std::vector<uint32_t> called_ops;  // Those that were described at run time.
  std::vector<uint32_t> inputs;      // The places of the tensors that the op reads.
  uint32_t frame_size_bytes = 0;     // Of the op, in the revision of the formula.
  uint32_t run_size_bytes = 0;       // With the values of the lines.
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

// Parses a decomposition, which gives each output of the op a value. Returns "" and sets
// `out_formula`, or returns what is wrong, with the line and the word.
std::string parse_decomposition(const FormulaSubject& subject, std::string_view text,
                                Formula& out_formula);

// Checks the gradients of an op, which may be "none: REASON", the name of an op, or formulas. Sets
// the called ops of `out_formula`. Returns what is wrong, or "".
std::string check_backward(const FormulaSubject& subject, std::string_view text,
                           Formula& out_formula);

}  // namespace bp::core
