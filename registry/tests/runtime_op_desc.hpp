// The description of an op for tests: y = x @ weight, with an enumeration and an axis. A test can
// bend each part of it.
#pragma once

#include <string>
#include <vector>

#include "backplane/operator.h"

namespace bp::core {

inline bp_op_argument test_argument(const char* name, bp_argument_kind kind, uint32_t offset_bytes,
                                    const char* dtype_rule, const char* shape_rule) {
  bp_op_argument argument{};
  argument.struct_size = sizeof(argument);
  argument.struct_type = BP_STRUCT_OP_ARGUMENT;
  argument.name = name;
  argument.kind = kind;
  argument.offset_bytes = offset_bytes;
  argument.dtype_rule = dtype_rule;
  argument.shape_rule = shape_rule;
  return argument;
}

struct TestOp {
  explicit TestOp(std::string own_name) : name(std::move(own_name)) {
    arguments = {
        test_argument("x", BP_ARGUMENT_TENSOR, 8, "float", nullptr),
        test_argument("weight", BP_ARGUMENT_TENSOR, 16, "like(x)",
                      "[x.shape[-1], weight.shape[1]]"),
        test_argument("y", BP_ARGUMENT_OUT, 24, "like(x)", "x.shape[:-1] + [weight.shape[1]]"),
        test_argument("mode", BP_ARGUMENT_ENUM, 32, nullptr, nullptr),
        test_argument("axis", BP_ARGUMENT_I32, 36, nullptr, nullptr)};
    arguments[3].value_count = 2;
    arguments[3].first_value = 1;
    arguments[3].default_text = "fast";
    arguments[4].at_least = "0";
    arguments[4].below = "max(x.ndim, 1)";
  }

  // Appends an optional tensor in revision 2.
  void append_bias() {
    arguments.push_back(test_argument("bias", BP_ARGUMENT_OPTIONAL_TENSOR, frame_size_bytes,
                                      "like(x)", "[weight.shape[1]]"));
    arguments.back().since = revision = 2;
    frame_size_bytes += 8;
  }

  // The description points into this object.
  bp_op_desc desc() {
    for (bp_op_argument& argument : arguments) {
      if (argument.kind == BP_ARGUMENT_ENUM) argument.value_names = value_names;
    }
    bp_op_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_OP_DESC;
    desc.name = name.c_str();
    desc.doc = "The product of x and weight.";
    desc.revision = revision;
    desc.frame_size_bytes = frame_size_bytes;
    desc.arguments = arguments.data();
    desc.argument_count = arguments.size();
    desc.argument_stride_bytes = sizeof(bp_op_argument);
    desc.decomposition = decomposition;
    desc.condition = condition;
    desc.backward = backward;
    desc.formula_revision = formula_revision;
    desc.backward_revision = backward_revision;
    desc.infer = infer;
    desc.state = state;
    return desc;
  }

  // Overwrites everything to which a description points.
  void scribble() {
    name.assign(name.size(), '?');
    for (bp_op_argument& argument : arguments) argument = {};
    value_names[0] = value_names[1] = nullptr;
  }

  std::string name;
  std::vector<bp_op_argument> arguments;
  const char* value_names[2] = {"exact", "fast"};
  uint32_t revision = 0, frame_size_bytes = 40, formula_revision = 0, backward_revision = 0;
  const char* decomposition = nullptr;
  const char* condition = nullptr;
  const char* backward = nullptr;
  decltype(bp_op_desc::infer) infer = nullptr;
  void* state = nullptr;
};

// An op of the spec under another name, which a host takes for one that was described at run time.
struct TwinOp {
  explicit TwinOp(const bp_op_desc& ours) : name(std::string("twin.") + ours.name), desc(ours) {
    arguments.assign(ours.arguments, ours.arguments + ours.argument_count);
    desc.name = name.c_str();
    desc.arguments = arguments.data();
    desc.argument_stride_bytes = sizeof(bp_op_argument);
    for (bp_op_argument& argument : arguments) {
      if (argument.shape_rule == nullptr || argument.kind < BP_ARGUMENT_OUT) continue;
      // The rules of such an op read no output, unless its shape is given.
      for (const bp_op_argument& other : arguments) {
        const std::string shape = std::string(other.name) + ".shape";
        if (shape == argument.shape_rule && other.kind == BP_ARGUMENT_OUT) {
          argument.shape_rule = other.shape_rule;
        }
      }
    }
  }
  TwinOp(const TwinOp&) = delete;

  std::string name;
  std::vector<bp_op_argument> arguments;
  bp_op_desc desc;
};

}  // namespace bp::core
