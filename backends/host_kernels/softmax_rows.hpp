// softmax and related functions over rows in memory, for every float dtype that kernels have.
//
// If a row contains NaN or +inf, or only -inf, all its results are NaN, as the formulas give.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/shell/narrow.hpp"
#include "backplane/tensor.h"

namespace bp::kernels {

// The tensors are (outer, count, inner), dense; the sums run over count.
struct SoftmaxExtents {
  int64_t outer, count, inner;
};

// These functions compute softmax and log_softmax. y may be x.
void softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& extents,
                   int thread_count);
void log_softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y,
                       const SoftmaxExtents& extents, int thread_count);

// Computes the gradient. grad_x may be grad_y or y.
void softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                            std::byte* grad_x, const SoftmaxExtents& extents, int thread_count);
void log_softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                                std::byte* grad_x, const SoftmaxExtents& extents, int thread_count);

// Returns log(sum(exp(x))) of one dense row of at least one element.
double log_sum_exp(const float* x, int64_t count);
double log_sum_exp(const double* x, int64_t count);
double log_sum_exp(const Float16* x, int64_t count);
double log_sum_exp(const BFloat16* x, int64_t count);

// Computes y = scale * (exp(x - shift) - base) for one dense row. y may be x.
void scaled_exp(const float* x, float* y, int64_t count, float shift, float base, float scale);
void scaled_exp(const double* x, double* y, int64_t count, double shift, double base, double scale);
void scaled_exp(const Float16* x, Float16* y, int64_t count, float shift, float base, float scale);
void scaled_exp(const BFloat16* x, BFloat16* y, int64_t count, float shift, float base,
                float scale);

}  // namespace bp::kernels
