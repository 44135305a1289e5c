// Every kernel of this folder that is our own. Those of one op stand in the order in which they are
// tried.
#pragma once

#include "backplane/kernel.h"

namespace bp::cuda {

// activation.cu
extern const bp_kernel kTanh, kTanhBackward, kSigmoid, kSigmoidBackward, kGelu, kGeluBackward,
    kSilu, kSiluBackward;

// argmax.cu, reduction.cu
extern const bp_kernel kArgmax, kSum, kMean, kAmax;

// binary.cu
extern const bp_kernel kAdd, kSub, kMul, kDiv, kMaximum, kMinimum, kEq, kLt;

// cat.cu, gather.cu, embedding.cu, scatter.cu, sort.cu
extern const bp_kernel kCat, kGather, kIndexSelect, kEmbedding, kEmbeddingBackward, kScatter,
    kScatterReduce, kSort, kTopk;

// cross_entropy.cu
extern const bp_kernel kCrossEntropy, kCrossEntropyBackward;

// layer_norm.cu, softmax.cu
extern const bp_kernel kLayerNorm, kLayerNormBackward, kRmsNorm, kRmsNormBackward, kSoftmax,
    kLogSoftmax, kSoftmaxBackward, kLogSoftmaxBackward;

// movement.cu, where.cu
extern const bp_kernel kFill, kCopy, kArange, kWhere;

// optimizer.cu, rope.cu
extern const bp_kernel kSgdStep, kAdamwStep, kScaleAndCheckFinite, kRope, kRopeBackward;

// random.cu
extern const bp_kernel kRandomBits, kUniform, kNormal, kDropout, kDropoutBackward;

// sdpa.cu, sdpa_backward.cu
extern const bp_kernel kSdpa, kSdpaBackward;

// unary.cu
extern const bp_kernel kNeg, kAbs, kExp, kLog, kSqrt, kRelu, kReluBackward;

inline constexpr const bp_kernel* kKernels[] = {
    &kFill,
    &kCopy,
    &kArange,
    &kWhere,
    &kNeg,
    &kAbs,
    &kExp,
    &kLog,
    &kSqrt,
    &kRelu,
    &kReluBackward,
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
};

}  // namespace bp::cuda
