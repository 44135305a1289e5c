// The host side of scatter.comp, which writes elements of src to places of y, or adds them there.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// A tensor that a scatter accesses. Strides count elements: along the lines, along the walk of a
// line, and along the places of y. The outermost axis is first.
struct ScatterOperand {
  const bp_tensor* tensor;
  Strides line{}, walk{};
};

struct Scatter {
  const char* op;
  bool adds = false, skips_minus_one = false;
  uint32_t bounds = 0;
  uint32_t line_ndim = 0, walk_ndim = 0, place_ndim = 0;
  Strides line_shape{}, walk_shape{}, place_shape{};
  ScatterOperand y, src, indices;
  Strides place{};    // Used by y alone.
  uint64_t lost = 0;  // For sums of floats, the distance from a sum to its rounding error.
};

// Submits a scatter. y already holds the values to which src is added.
bp_status submit_scatter(Launch& launch, const Scatter& scatter);

// Returns the scratch memory of a sum into `y`. Narrow floats are summed in f32, and the rounding
// error of a sum of floats is summed beside it.
uint64_t sum_workspace(const bp_tensor& y);

// Submits sums into y, which begins as `base`, or as zeros if `base` is NULL. scatter_to(y) returns
// the scatter, whose destination is y itself or an f32 tensor in the workspace, from which y is
// rounded.
bp_status submit_scatter_sum(Launch& launch, const bp_tensor& y, const bp_tensor* base,
                             const std::function<Scatter(const bp_tensor& y)>& scatter_to);

}  // namespace bp::vulkan
