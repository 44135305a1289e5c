// The walk of a shader over several tensors of one shape, in as few axes as their strides allow.
//
// Axes of extent 1 are removed. The others are ordered by the stride of the first tensor, and
// neighbours that continue each other in every tensor are merged. So tensors without gaps become
// one row.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "backplane/tensor.h"

namespace bp::vulkan {

constexpr size_t kMaxOperands = 4;

// One tensor of a walk. It has one stride per axis, which counts elements. Without strides, the
// same element is repeated.
struct WalkOperand {
  const int64_t* strides;
  int64_t size_bytes;
};

struct Walk {
  uint32_t rank = 0;                           // Axes after merging; 0 for one element.
  int64_t count = 1;                           // The number of elements.
  std::array<int64_t, BP_MAX_RANK> extents{};  // The innermost axis is first.
  std::array<std::array<int64_t, BP_MAX_RANK>, kMaxOperands> strides{};  // Bytes, per operand.
};

// Makes a walk. If `keeps_order` is true, axes stay in row-major order, for ops that count
// elements.
Walk make_walk(uint32_t ndim, const int64_t* shape, std::span<const WalkOperand> operands,
               bool keeps_order = false);

// Makes a walk over tensors of one shape. The first one is not NULL; NULL repeats one element.
Walk make_walk(std::initializer_list<const bp_tensor*> tensors, bool keeps_order = false);

}  // namespace bp::vulkan
