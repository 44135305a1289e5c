// The table of what PyTorch calls and which op of the library does it.
//
// A row names an operator of ATen in its functional form; the forms that write in place or into
// out= follow from the schemas that PyTorch has. Rows of one operator are tried in their order. The
// bindings are words, each "argument of the op = argument of ATen":
//
//   x=self             A tensor, a number, a list, a choice by its name or by its number.
//   b=#2               A number.
//   ?beta=1            The row is for calls alone whose argument beta is 1; "?d=none": is not
//   given. ~exponent=2        The same, and the number has its part in the common dtype.
//   !condition=mask    A tensor whose dtype has no part in the common dtype.
//   +indices           The optional output `indices` is wanted.
#pragma once

#include <cstdint>
#include <span>

namespace bpt {

enum RowFlags : uint32_t {
  kElementwise = 1u << 0,  // Tensors are broadcast, and converted to their common dtype.
  kFloat = 1u << 1,        // Integers become floats of the default dtype.
  kDtype = 1u << 2,        // The first tensor is converted to the argument `dtype` if it is given.
  kAlpha = 1u << 3,        // b is alpha * other. Only a number that the host knows is scaled.
  kScaled = 1u << 4,       // As kAlpha or `value`, and a tensor is scaled by a launch before.
  kKeepsByte = 1u << 5,    // A result for u8 is u8, not bool.
  kOfSelf = 1u << 6,       // The common dtype is that of the first tensor.
  kNegated = 1u << 7,      // With c=alpha: its negative.
  kBool = 1u << 8,         // The row is for calls alone whose common dtype is bool.
  kInteger = 1u << 9,      // The row is for calls alone whose common dtype is an integer.
};

struct Row {
  const char* aten;  // "add.Tensor", or several names.
  const char* op;
  const char* binds;
  uint32_t flags;
};

std::span<const Row> elementwise_rows();
std::span<const Row> other_rows();

// Registers all rows with PyTorch's dispatcher, and what is composed of other operators.
void register_table();

}  // namespace bpt
