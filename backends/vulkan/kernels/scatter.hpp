// The host side of scatter.comp: elements of src put at, or added to, places of y.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// A tensor that a scatter touches; strides count elements, along the lines, along what a line walks
// over, and along the places of y. Axes are outermost first.
struct ScatterOperand {
  const bp_tensor* tensor;
  Strides line{}, walk{};
};

struct Scatter {
  const char* op;
  bool adds = false, skips_minus_one = false;
  uint32_t line_ndim = 0, walk_ndim = 0, place_ndim = 0;
  Strides line_shape{}, walk_shape{}, place_shape{};
  ScatterOperand y, src, indices;
  Strides place{};    // Of y.
  uint64_t lost = 0;  // Where floats are added: how far behind a sum lies what rounding took of it.
};

// Submits it. y holds what is added to.
bp_status submit_scatter(Launch& launch, const Scatter& scatter);

// The scratch memory of a sum into `y`: narrow floats are added up in f32, and what rounding takes
// from a sum of floats is added up beside it.
uint64_t sum_workspace(const bp_tensor& y);

// Adds to y, which begins as `base`, or as zeros if that is NULL. scatter_to(y) is what is added:
// to y itself, or to a tensor of f32 in the workspace from which y is rounded.
bp_status submit_scatter_sum(Launch& launch, const bp_tensor& y, const bp_tensor* base,
                             const std::function<Scatter(const bp_tensor& y)>& scatter_to);

}  // namespace bp::vulkan
