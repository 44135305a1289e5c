// Every kernel of this folder; those of element-wise ops are emitted (elementwise_list.hpp).
#pragma once

#include "backplane/kernel.h"

namespace bp::cuda {

// activation.cu
extern const bp_kernel kGelu, kGeluBackward;

// argmax.cu, reduction.cu
extern const bp_kernel kArgmax, kSum, kMean, kAmax;

// avg_pool.cu, max_pool.cu
extern const bp_kernel kAvgPool, kAvgPoolBackward, kMaxPool, kMaxPoolBackward;

// cat.cu, gather.cu, embedding.cu, scatter.cu, sort.cu
extern const bp_kernel kCat, kGather, kIndexSelect, kEmbedding, kEmbeddingBackward, kScatter,
    kScatterReduce, kSort, kTopk;

// convolution.cpp, convolution_direct.cu
extern const bp_kernel kConvolutions[12];  // Four of each direction.
extern const bp_kernel kConvolutionBackwardBias;

// cross_entropy.cu
extern const bp_kernel kCrossEntropy, kCrossEntropyBackward;

// layer_norm.cu, softmax.cu
extern const bp_kernel kLayerNorm, kLayerNormBackward, kRmsNorm, kRmsNormBackward, kSoftmax,
    kLogSoftmax, kSoftmaxBackward, kLogSoftmaxBackward;

// linear.cpp, matmul.cpp
extern const bp_kernel kLinearLibrary, kLinearLibraryNarrow, kLinearLibraryTf32, kLinearTiles,
    kMatmulLibrary, kMatmulLibraryNarrow, kMatmulLibraryTf32, kMatmulTiles;

// movement.cu, where.cu
extern const bp_kernel kFill, kCopy, kArange, kWhere;

// optimizer.cu, rope.cu
extern const bp_kernel kSgdStep, kAdamwStep, kScaleAndCheckFinite, kRope, kRopeBackward;

// random.cu
extern const bp_kernel kRandomBits, kUniform, kNormal, kDropout, kDropoutBackward;

// sdpa.cu, sdpa_backward.cu
extern const bp_kernel kSdpa, kSdpaBackward;

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
    &kSoftmax,
    &kLogSoftmax,
    &kSoftmaxBackward,
    &kLogSoftmaxBackward,
    &kLayerNorm,
    &kLayerNormBackward,
    &kRmsNorm,
    &kRmsNormBackward,
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
    &kSgdStep,
    &kAdamwStep,
    &kScaleAndCheckFinite,
    &kRope,
    &kRopeBackward,
    &kSdpa,
    &kSdpaBackward,
    &kMaxPool,
    &kMaxPoolBackward,
    &kAvgPool,
    &kAvgPoolBackward,
    &kMatmulLibraryTf32,
    &kMatmulLibrary,
    &kMatmulLibraryNarrow,
    &kMatmulTiles,
    &kLinearLibraryTf32,
    &kLinearLibrary,
    &kLinearLibraryNarrow,
    &kLinearTiles,
    &kConvolutions[0],
    &kConvolutions[1],
    &kConvolutions[2],
    &kConvolutions[3],
    &kConvolutions[4],
    &kConvolutions[5],
    &kConvolutions[6],
    &kConvolutions[7],
    &kConvolutions[8],
    &kConvolutions[9],
    &kConvolutions[10],
    &kConvolutions[11],
    &kConvolutionBackwardBias,
};

}  // namespace bp::cuda
