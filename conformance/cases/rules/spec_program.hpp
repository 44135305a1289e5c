// The programs of the rules of the spec, in the words of emit_spec_rules.py, on a stack of values.
// A value that is computed from Nothing is Nothing, and a comparison with Nothing is false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backplane/tensor.h"
#include "conformance/cases/engine/op_frame.hpp"
#include "conformance/cases/rules/spec_values.hpp"

namespace bp::conformance::spec {

struct Machine {
  const void* frame;
  size_t item;  // The index among the tensors that stand for an argument.
  std::vector<Value> stack;

  Value pop();
};

// One word and the argument or number that it names.
struct Step {
  void (*run)(Machine& machine, const Step& step);
  const FrameMember* member = nullptr;
  bool is_of_item = false;  // The word reads the tensor at hand, else the first tensor.
  std::vector<int64_t> numbers;
  double number = 0;

  const bp_tensor* tensor(const Machine& machine) const;
};

using Program = std::vector<Step>;

// Throws std::invalid_argument if a word is not known.
Program parse_program(const OpInfo& info, std::string_view text);

Value run(const Program& program, const void* frame, size_t item);

// Returns the right value of `own` in a rule "own == wanted".
Value wanted_by(const Program& program, const void* frame, size_t item);

bool is_true(const Value& value);

// Returns the tensors that stand for an argument.
std::vector<const bp_tensor*> tensors_of(const void* frame, const FrameMember& member);

}  // namespace bp::conformance::spec
