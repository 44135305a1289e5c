// An op of the library by its description: where each argument stands in its frame. The names are
// looked up when an op is first used; no offset of ops.h is compiled in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backplane/host.h"
#include "backplane/operator.h"

namespace bpt {

// The largest frame that a call can hold; an op with a larger one is not used.
constexpr size_t kMaxFrameSize = 512;

struct Argument {
  std::string name;
  bp_argument_kind kind;
  uint32_t offset;
  const bp_op_argument* description;

  bool is_tensor() const {
    return kind == BP_ARGUMENT_TENSOR || kind == BP_ARGUMENT_OPTIONAL_TENSOR;
  }
  bool is_value() const {  // A tensor, or a number in the frame.
    return kind == BP_ARGUMENT_OPERAND || kind == BP_ARGUMENT_SCALAR_TENSOR;
  }
  bool is_out() const { return kind == BP_ARGUMENT_OUT || kind == BP_ARGUMENT_OPTIONAL_OUT; }
};

struct Op {
  uint32_t number;
  const bp_op_desc* description;
  std::vector<Argument> arguments;
  std::vector<unsigned char> frame;  // A frame with the size, and the defaults of the attributes.
  int first_out = -1;

  int find(std::string_view name) const;  // -1 if there is no such argument.
  int at(std::string_view name) const;    // Throws Unsupported if there is no such argument.
};

// Throws Unsupported if the library that is loaded has no such op.
const Op& op_named(std::string_view name);

}  // namespace bpt
