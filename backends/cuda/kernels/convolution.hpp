// A convolution and its gradients as this backend computes them: by cuDNN
// (convolution_library.cpp), or element by element (convolution_direct.cu), which takes everything.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/kernels/product.hpp"
#include "backplane/ops.h"

namespace bp::cuda {

struct Convolution {
  DnnDirection direction = DnnDirection::kForward;
  int axes = 0;  // Spatial ones.
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  const bp_tensor* bias = nullptr;  // Or none.
  int64_t groups = 1;
  std::array<int64_t, 3> stride{}, dilation{}, low{}, high{};

  const bp_tensor& result() const {
    return direction == DnnDirection::kForward         ? *y
           : direction == DnnDirection::kBackwardInput ? *x
                                                       : *weight;
  }
  // There is nothing that could be summed.
  bool is_empty() const;
};

Convolution convolution_of(const bp_convolution_args& args);
Convolution convolution_of(const bp_convolution_backward_input_args& args);
Convolution convolution_of(const bp_convolution_backward_weight_args& args);

// ---- cuDNN
// ---------------------------------------------------------------------------------------

// NULL, or why cuDNN does not take the convolution as it lies.
bp_reason refuse_library_convolution(const Convolution& c);
// Of a convolution that is not refused.
DnnProblem library_convolution(const Convolution& c, bool allows_tf32, bool is_aligned);

// ---- Element by element
// --------------------------------------------------------------------------

bp_status launch_convolution_direct(const Convolution& c, Launch& launch);
// y = bias, along its second axis.
bp_status launch_bias_fill(const Convolution& c, Launch& launch);

}  // namespace bp::cuda
