// The axes of a shader that walks any number of tensors (axes.glsl). Unlike walk.hpp, which orders
// axes by itself, it keeps the axes that a kernel gives, of one tensor or of parts of its axes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "backplane/tensor.h"

namespace bp::vulkan {

// One tensor along the axes, with its strides in elements. Without strides, the same element is
// repeated.
struct AxisOperand {
  const int64_t* strides;
  int64_t size_bytes;
  int64_t* to;  // Gets BP_MAX_RANK strides in bytes, the innermost first.
};

enum class AxisOrder { kGiven, kByStride };

// Writes extents and strides, with the innermost axis first. It removes axes of extent 1, and
// merges neighbours that continue each other in every tensor. kByStride orders the axes by the
// strides of the first tensor. Returns the number of axes, at least 1.
uint32_t put_axes(std::span<const int64_t> shape, std::initializer_list<AxisOperand> operands,
                  uint32_t (&out_extents)[BP_MAX_RANK], AxisOrder order = AxisOrder::kGiven);

}  // namespace bp::vulkan
