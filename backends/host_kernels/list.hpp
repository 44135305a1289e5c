// Every kernel of this folder, for the backends that register them. Those of one op stand in the
// order in which they are tried. The element-wise ones, which have one kernel each, are in the
// generated list.
#pragma once

#include "backends/host_kernels/kernels.hpp"
#include "elementwise_list.hpp"

namespace bp::kernels {

inline constexpr const bp_kernel* kKernels[] = {
    &kFill,
    &kCopy,
    &kArange,
    &kWhere,
    &kGelu,
    &kGeluBackward,
    &kSum,
    &kMean,
    &kAmax,
    &kArgmax,
    &kRandomBits,
    &kUniform,
    &kNormal,
    &kDropout,
    &kDropoutBackward,
    &kSgdStep,
    &kAdamwStep,
    &kScaleAndCheckFinite,
    &kSoftmax,
    &kLogSoftmax,
    &kSoftmaxBackward,
    &kLogSoftmaxBackward,
    &kLayerNorm,
    &kLayerNormBackward,
    &kRmsNorm,
    &kRmsNormBackward,
    &kRope,
    &kRopeBackward,
    &kSdpa,
    &kSdpaBackward,
    &kMaxPool,
    &kMaxPoolBackward,
    &kAvgPool,
    &kAvgPoolBackward,
    &kCrossEntropy,
    &kCrossEntropyBackward,
    &kEmbedding,
    &kEmbeddingBackward,
    &kGather,
    &kIndexSelect,
    &kCat,
    &kScatter,
    &kScatterReduce,
    &kSort,
    &kTopk,
};

// What needs oneDNN: a build without it lacks them.
inline constexpr const bp_kernel* kLibraryKernels[] = {
    &kMatmul,
    &kLinear,
    &kConvolution,
    &kConvolutionBackwardInput,
    &kConvolutionBackwardWeight,
    &kConvolutionBackwardBias,
};

}  // namespace bp::kernels
