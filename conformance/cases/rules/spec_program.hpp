// The programs of the rules of the spec, in the words of emit_spec_rules.py, on a stack of values.
// What is computed from Nothing is Nothing, and a comparison with it does not hold.
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
  size_t item;  // Of the tensors that stand for an argument.
  std::vector<Value> stack;

  Value pop();
};

// One word with what it names.
struct Step {
  void (*run)(Machine& machine, const Step& step);
  const FrameMember* member = nullptr;
  bool is_of_item = false;  // Of the tensor at hand, else of the first.
  std::vector<int64_t> numbers;
  double number = 0;

  const bp_tensor* tensor(const Machine& machine) const;
};

using Program = std::vector<Step>;

// Throws std::invalid_argument where a word is not known.
Program parse_program(const OpInfo& info, std::string_view text);

Value run(const Program& program, const void* frame, size_t item);

// What `own` of a rule "own == wanted" should have been.
Value wanted_by(const Program& program, const void* frame, size_t item);

bool is_true(const Value& value);

// The tensors that stand for an argument.
std::vector<const bp_tensor*> tensors_of(const void* frame, const FrameMember& member);

}  // namespace bp::conformance::spec
