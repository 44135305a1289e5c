// The windows of convolutions and pools, as the attributes kernel_shape, strides, dilations, pads,
// auto_pad and ceil_mode describe them.
#pragma once

#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

struct Window {
  std::vector<int64_t> kernel, strides, dilations;  // One number for each spatial axis.
  std::vector<int64_t> pads;         // The elements before each spatial axis, then those after.
  std::vector<int64_t> ceil_excess;  // How far the last window may reach behind the pads.

  size_t axis_count() const { return kernel.size(); }
  int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

// Reads the attributes for an input of `shape`, which is (N, C, spatial). `kernel` has the extents
// of the weight; without it, kernel_shape must be given.
Window read_window(const Call& call, IntList shape, std::vector<int64_t> kernel = {});

}  // namespace bp::onnx
