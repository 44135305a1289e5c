// softmax and what is made of its parts, over rows in memory, for f32 and f64.
//
// A row that holds NaN or +inf, or nothing but -inf, gives NaN everywhere, as the formulas do.
#pragma once

#include <cstdint>

namespace bp::kernels {

// x and y are (outer, count, inner), dense; the sums run over count. y may be x.
struct SoftmaxExtents {
  int64_t outer, count, inner;
};

void softmax_dense(const float* x, float* y, const SoftmaxExtents& extents, int thread_count);
void softmax_dense(const double* x, double* y, const SoftmaxExtents& extents, int thread_count);
void log_softmax_dense(const float* x, float* y, const SoftmaxExtents& extents, int thread_count);
void log_softmax_dense(const double* x, double* y, const SoftmaxExtents& extents, int thread_count);

// log(sum(exp(x))) of one dense row of at least one element.
double log_sum_exp(const float* x, int64_t count);
double log_sum_exp(const double* x, int64_t count);

// y = scale * (exp(x - shift) - base), for one dense row; y may be x.
void scaled_exp(const float* x, float* y, int64_t count, float shift, float base, float scale);
void scaled_exp(const double* x, double* y, int64_t count, double shift, double base, double scale);

}  // namespace bp::kernels
