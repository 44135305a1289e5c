// Every kernel of this folder, but those of element-wise ops, which are emitted
// (elementwise_list.hpp). Those of one op stand in the order in which they are tried.
#pragma once

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

inline constexpr const bp_kernel* kKernels[] = {
    &kGelu,
    &kGeluBackward,
    &kArange,
    &kCat,
    &kConvolution,
    &kConvolutionBackwardInput,
    &kConvolutionBackwardWeight,
    &kConvolutionBackwardBias,
    &kCrossEntropy,
    &kCrossEntropyBackward,
    &kEmbeddingBackward,
    &kGather,
    &kIndexSelect,
    &kEmbedding,
    &kLinear,
    &kMatmul,
    &kFill,
    &kCopy,
    &kLayerNorm,
    &kLayerNormBackward,
    &kRmsNorm,
    &kRmsNormBackward,
    &kSgdStep,
    &kAdamwStep,
    &kScaleAndCheckFinite,
    &kMaxPool,
    &kMaxPoolBackward,
    &kAvgPool,
    &kAvgPoolBackward,
    &kRandomBits,
    &kUniform,
    &kNormal,
    &kDropout,
    &kDropoutBackward,
    &kSum,
    &kMean,
    &kAmax,
    &kArgmax,
    &kRope,
    &kRopeBackward,
    &kScatter,
    &kScatterReduce,
    &kSdpa,
    &kSdpaBackward,
    &kSoftmax,
    &kLogSoftmax,
    &kSoftmaxBackward,
    &kLogSoftmaxBackward,
    &kSort,
    &kTopk,
    &kWhere,
};

}  // namespace bp::vulkan
