// grad_sinks of sdpa_backward: for each query head the sum of -exp(sink - lse) * sum(grad_y * y)
// over its queries. The sums are in f64, and in order, so equal input gives equal bits for any
// number of threads. They take one pass over y and grad_y.
#include <cmath>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/sdpa.hpp"

namespace bp::kernels {
namespace {

// Returns what one row adds. A row whose lse is -inf has no weights.
template <typename T>
double term_of(const AttentionBackward& a, int64_t problem, int64_t row) {
  using Sum = Compute<T>;
  const double lse = *a.row_of<const Sum>(a.lse, problem, row);
  if (lse == -std::numeric_limits<double>::infinity()) return 0;
  const T* const y = a.row_of<const T>(a.y, problem, row);
  const T* const grad_y = a.row_of<const T>(a.grad_y, problem, row);
  double delta = 0;
  for (int64_t c = 0; c < a.value_width; ++c) {
    delta += static_cast<double>(widen(grad_y[c * a.grad_y.strides[3]])) *
             static_cast<double>(widen(y[c * a.y.strides[3]]));
  }
  return -std::exp(static_cast<double>(a.sink_of<Sum>(problem, row)) - lse) * delta;
}

template <typename T>
void run_heads(const AttentionBackward& a, int thread_count) {
  using Sum = Compute<T>;
  const int64_t heads = a.key_heads * a.group;
#pragma omp parallel for num_threads(thread_count) schedule(static)
  for (int64_t head = 0; head < heads; ++head) {
    double sum = 0;
    for (int64_t batch = 0; batch < a.batch; ++batch) {
      const int64_t problem = batch * a.key_heads + head / a.group;
      for (int64_t query = 0; query < a.queries; ++query) {
        sum += term_of<T>(a, problem, head % a.group * a.queries + query);
      }
    }
    reinterpret_cast<Sum*>(a.grad_sinks.address)[head * a.grad_sinks.strides[0]] =
        static_cast<Sum>(sum);
  }
}

}  // namespace

void run_sink_gradients(const AttentionBackward& attention, int thread_count) {
  with_float(attention.dtype, [&]<typename T>(T) { run_heads<T>(attention, thread_count); });
}

}  // namespace bp::kernels
