// How a shader walks over several tensors of one shape: as few axes as their strides allow.
//
// Axes of extent 1 vanish, the others are ordered by the stride of the first tensor, and neighbours
// that lie behind each other in every tensor are merged: tensors without gaps become one row.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "backplane/tensor.h"

namespace bp::vulkan {

constexpr size_t kMaxOperands = 4;

// One side of a walk. Strides count elements, one per axis; none: the same element everywhere.
struct WalkOperand {
  const int64_t* strides;
  int64_t size_bytes;
};

struct Walk {
  uint32_t rank = 0;                           // Axes that are left; 0 for one element.
  int64_t count = 1;                           // Elements.
  std::array<int64_t, BP_MAX_RANK> extents{};  // The innermost first, as everywhere here.
  std::array<std::array<int64_t, BP_MAX_RANK>, kMaxOperands> strides{};  // In bytes, per operand.
};

// `keeps_order`: axes stay in row-major order, for ops that count elements.
Walk make_walk(uint32_t ndim, const int64_t* shape, std::span<const WalkOperand> operands,
               bool keeps_order = false);

// A walk over tensors of one shape, of which the first is not NULL; NULL repeats one element.
Walk make_walk(std::initializer_list<const bp_tensor*> tensors, bool keeps_order = false);

}  // namespace bp::vulkan
