// A convolution and its gradients. cuDNN computes them (convolution.cpp), or a kernel
// computes them element by element (convolution_direct.cu), which takes every call.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/kernels/product.hpp"
#include "backplane/ops.h"

namespace bp::cuda {

struct Convolution {
  DnnDirection direction = DnnDirection::kForward;
  int axes = 0;  // The number of spatial axes.
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  const bp_tensor* bias = nullptr;  // NULL if there is no bias.
  int64_t groups = 1;
  std::array<int64_t, 3> stride{}, dilation{}, low{}, high{};

  const bp_tensor& result() const {
    return direction == DnnDirection::kForward         ? *y
           : direction == DnnDirection::kBackwardInput ? *x
                                                       : *weight;
  }
  // Returns whether there is no product that could be summed.
  bool is_empty() const;
};

Convolution convolution_of(const bp_convolution_args& args);
Convolution convolution_of(const bp_convolution_backward_input_args& args);
Convolution convolution_of(const bp_convolution_backward_weight_args& args);

// ---- cuDNN --------------------------------------------------------------------------------------

// Returns NULL, or why cuDNN does not take the convolution with its layouts.
bp_reason refuse_library_convolution(const Convolution& c);
// Describes a convolution that is not refused.
DnnProblem library_convolution(const Convolution& c, bool allows_tf32, bool is_aligned);

// ---- Element by element -------------------------------------------------------------------------

bp_status launch_convolution_direct(const Convolution& c, Launch& launch);
// Sets y to the bias, along the second axis.
bp_status launch_bias_fill(const Convolution& c, Launch& launch);
// Copies a tensor without gaps to f32, in the order of its memory.
bp_status launch_widening(const bp_tensor& from, std::byte* to, Launch& launch);
// Sets y to the sums in f32, which have these strides in elements, plus the bias, rounded once.
bp_status launch_bias_rounding(const Convolution& c, const std::byte* sums, const int64_t* strides,
                               Launch& launch);

}  // namespace bp::cuda
