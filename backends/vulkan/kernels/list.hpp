// Every kernel of this folder. Those of one op stand in the order in which they are tried.
#pragma once

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

inline constexpr const bp_kernel* kKernels[] = {
    &kTanh,
    &kTanhBackward,
    &kSigmoid,
    &kSigmoidBackward,
    &kGelu,
    &kGeluBackward,
    &kSilu,
    &kSiluBackward,
    &kAdd,
    &kSub,
    &kMul,
    &kDiv,
    &kMaximum,
    &kMinimum,
    &kEq,
    &kLt,
    &kMatmul,
    &kLinear,
    &kFill,
    &kCopy,
    &kSum,
    &kMean,
    &kAmax,
    &kArgmax,
    &kSoftmax,
    &kLogSoftmax,
    &kSoftmaxBackward,
    &kLogSoftmaxBackward,
    &kNeg,
    &kAbs,
    &kExp,
    &kLog,
    &kSqrt,
    &kRelu,
    &kReluBackward,
    &kWhere,
};

}  // namespace bp::vulkan
