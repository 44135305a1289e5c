// softmax and what is made of its parts, over rows in memory, for every float that kernels have.
//
// A row that holds NaN or +inf, or nothing but -inf, gives NaN everywhere, as the formulas do.
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

// y may be x.
void softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& extents,
                   int thread_count);
void log_softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y,
                       const SoftmaxExtents& extents, int thread_count);

// grad_x may be grad_y or y.
void softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                            std::byte* grad_x, const SoftmaxExtents& extents, int thread_count);
void log_softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                                std::byte* grad_x, const SoftmaxExtents& extents, int thread_count);

// log(sum(exp(x))) of one dense row of at least one element.
double log_sum_exp(const float* x, int64_t count);
double log_sum_exp(const double* x, int64_t count);
double log_sum_exp(const Float16* x, int64_t count);
double log_sum_exp(const BFloat16* x, int64_t count);

// y = scale * (exp(x - shift) - base), for one dense row; y may be x.
void scaled_exp(const float* x, float* y, int64_t count, float shift, float base, float scale);
void scaled_exp(const double* x, double* y, int64_t count, double shift, double base, double scale);
void scaled_exp(const Float16* x, Float16* y, int64_t count, float shift, float base, float scale);
void scaled_exp(const BFloat16* x, BFloat16* y, int64_t count, float shift, float base,
                float scale);

}  // namespace bp::kernels
