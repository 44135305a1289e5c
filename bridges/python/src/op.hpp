// An op as Python calls it: what a description says, read once.
//
// A function has one parameter for each input and attribute, in the order of the description, those
// without a default first. Behind them are parameters that are given by name:
//
// - each output: a tensor to write to, or True for an optional one that shall be made;
// - `dtype` where the caller may choose that of an output, and NAME_dtype for an optional output;
// - `shape` and `device` where the caller gives the shape of an output.
//
// It returns the outputs that were made: one tensor, or a tuple of them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "backplane/operator.h"
#include "binding.hpp"

namespace bp::python {

struct Argument {
  const bp_op_argument* desc;
  std::string name;
  bp_argument_kind kind;
  uint32_t offset;
  bool is_tensor = false;   // An input, an output or both; one tensor or a list.
  bool is_output = false;   // The op writes it, and does not read it.
  bool is_written = false;  // The op reads and writes it.
  bool is_list = false;
  bool is_optional = false;
  bool has_scalar = false;
  bool is_broadcast = false;    // It is broadcast with the other inputs of this kind.
  bool is_cast = false;         // It is cast to one dtype with them.
  bool is_given_shape = false;  // The caller chooses the shape of the output.
  bool is_free = false;         // The caller may choose the dtype of the output.
  int32_t axis_of = -1;         // The tensor whose axes an integer counts, or -1.
  bool has_axis_0 = false;      // A tensor without axes has axis 0 here.
};

// One parameter of the function.
struct Parameter {
  enum class Role { kArgument, kOutput, kDtype, kShape, kDevice };

  PyObject* name;  // An interned str.
  Role role;
  uint32_t argument;  // The index of the argument that it is of.
  bool is_required;
};

struct Op {
  explicit Op(const bp_op_desc& described);
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  const bp_op_desc& desc;
  std::vector<Argument> arguments;
  std::vector<Parameter> parameters;
  std::vector<uint32_t> outputs;  // The arguments that are outputs.
  std::vector<uint32_t> group;    // Those that are broadcast to each other.
  size_t positional_count = 0;    // The parameters behind these are keyword-only.
  uint64_t written = 0;           // Bit i: argument i is read and written.
  bool has_operand = false;       // Inputs are broadcast and cast to each other.
  bool takes_floats_alone = false;
  std::string signature;  // "(x, k, axis=-1, *, indices=False)"
  std::string doc;

  // What backplane/_autograd.py says of the gradient, once it was asked: whether there is one, and
  // which outputs it needs (bit i is argument i).
  struct Gradient {
    bool exists;
    uint64_t saved_outputs;
  };
  const Gradient& gradient() const;

  // How calls are recorded in which the inputs of `required` require a gradient. Bit i of each mask
  // is argument i.
  struct Recipe {
    nb::object object;  // A Recipe of backplane/_autograd.py.
    uint64_t required, wanted;
    uint64_t kept, facts, versioned;  // Kept at all; without elements; with the number of writes.
    uint64_t differentiable;
    uint64_t later;  // What came after the gradient was written.
    bool needs_shapes;
  };
  const Recipe& recipe(uint64_t required) const;

 private:
  void read_arguments();
  void read_argument(const bp_op_argument& argument);
  void find_group();
  void add_parameters();
  void write_signature();
  void write_doc();

  mutable std::optional<Gradient> gradient_;
  mutable std::deque<Recipe> recipes_;
};

constexpr size_t kMaxArguments = 40;
constexpr size_t kMaxParameters = 96;

// Calls the op. `names` is a tuple of the keywords, whose values stand behind `count` positional
// ones, or NULL.
nb::object call(const Op& op, PyObject* const* values, size_t count, PyObject* names);

// Returns the text of an argument in messages: "add: b".
std::string place(const Op& op, const Argument& argument);

}  // namespace bp::python
