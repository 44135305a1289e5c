// Computes the gradients of softmax and log_softmax in two passes over each row: a sum, and the
// result. The terms of the sum are grad_y * y, or grad_y for log_softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/softmax_rows.hpp"
#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/softmax_backward_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// The term of the sum, and the result.
template <bool kIsLog, class V>
HWY_INLINE V sum_term(V grad_y, V y) {
  if constexpr (kIsLog) return grad_y;
  return hn::Mul(grad_y, y);
}
template <bool kIsLog, class D, class V = hn::Vec<D>>
HWY_INLINE V gradient(D d, V grad_y, V y, V sum) {
  if constexpr (kIsLog) return hn::Sub(grad_y, hn::Mul(exp(d, y), sum));
  return hn::Mul(y, hn::Sub(grad_y, sum));
}

template <bool kIsLog, typename T>
void run_row(const T* grad_y, const T* y, T* grad_x, int64_t count) {
  const ComputeTag<T> d;
  const auto sum = hn::Set(d, sum_of_terms<T>(count, [&](auto lanes) HWY_ATTR {
                             return sum_term<kIsLog>(lanes.load(grad_y), lanes.load(y));
                           }));
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    lanes.store(gradient<kIsLog>(d, lanes.load(grad_y), lanes.load(y), sum), grad_x);
  });
}

// Computes the first columns of (count, stride), one in each lane.
template <bool kIsLog, class D, typename T>
void run_columns(D d, const T* grad_y, const T* y, T* grad_x, int64_t count, int64_t stride) {
  RowSums<D> sums(d);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t i = row * stride;
    sums.add(sum_term<kIsLog>(load_lanes(d, grad_y + i), load_lanes(d, y + i)));
  }
  const auto sum = sums.total();
  for (int64_t i = 0; i < count * stride; i += stride) {
    store_lanes(gradient<kIsLog>(d, load_lanes(d, grad_y + i), load_lanes(d, y + i), sum), d,
                grad_x + i);
  }
}

constexpr int64_t kGrainElements = 8192;

template <bool kIsLog, typename T>
void run(const T* grad_y, const T* y, T* grad_x, const SoftmaxExtents& e, int thread_count) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, e.count));
  if (e.inner == 1) {
    return parallel_for(thread_count, e.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * e.count; at < end * e.count; at += e.count) {
        run_row<kIsLog>(grad_y + at, y + at, grad_x + at, e.count);
      }
    });
  }
  const ComputeTag<T> d;
  const hn::CappedTag<Compute<T>, 1> one;
  parallel_for(thread_count, e.outer * e.inner, grain, [&](int64_t begin, int64_t end) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t col = begin; col < end;) {
      const int64_t inner = col % e.inner, at = (col - inner) * e.count + inner;
      if (std::min(e.inner - inner, end - col) >= lanes) {
        run_columns<kIsLog>(d, grad_y + at, y + at, grad_x + at, e.count, e.inner);
        col += lanes;
      } else {
        run_columns<kIsLog>(one, grad_y + at, y + at, grad_x + at, e.count, e.inner);
        ++col;
      }
    }
  });
}

template <bool kIsLog>
void run_any(bp_dtype dtype, const std::byte* grad_y, const std::byte* y, std::byte* grad_x,
             const SoftmaxExtents& e, int thread_count) {
  const auto run_as = [&]<typename T>(T) {
    run<kIsLog>(reinterpret_cast<const T*>(grad_y), reinterpret_cast<const T*>(y),
                reinterpret_cast<T*>(grad_x), e, thread_count);
  };
  with_float(dtype, run_as);
}

// HWY_EXPORT needs functions that are not templates.
void softmax_backward(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                      std::byte* grad_x, const SoftmaxExtents& e, int thread_count) {
  run_any<false>(dtype, grad_y, y, grad_x, e, thread_count);
}
void log_softmax_backward(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                          std::byte* grad_x, const SoftmaxExtents& e, int thread_count) {
  run_any<true>(dtype, grad_y, y, grad_x, e, thread_count);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(softmax_backward);
HWY_EXPORT(log_softmax_backward);

}  // namespace

void softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                            std::byte* grad_x, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(dtype, grad_y, y, grad_x, e, thread_count);
}
void log_softmax_backward_dense(bp_dtype dtype, const std::byte* grad_y, const std::byte* y,
                                std::byte* grad_x, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(log_softmax_backward)(dtype, grad_y, y, grad_x, e, thread_count);
}

}  // namespace bp::kernels
#endif
