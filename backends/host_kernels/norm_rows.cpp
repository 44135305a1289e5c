// Computes norms of rows. Two passes over a row, which is then in the first-level cache, compute
// the mean, and the mean of the squared differences from it. A third pass writes the result and
// prefetches the next row. A result that does not stay in the caches is written past them.
#include <cmath>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/norm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/norm_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/row_store-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrainElements = 8192;

// The most elements of a row of which two fit the first-level cache.
constexpr int64_t kNearElements = 4096;

template <typename T, bool kIsCentered>
struct RowNorm {
  using Sum = Compute<T>;
  using Tag = ComputeTag<T>;

  // Computes one row. y may be x.
  void run(const T* x, T* y) const {
    mean = Sum{0};
    if constexpr (kIsCentered) {
      mean = sum_of_terms<T>(cols, [&](auto lanes) HWY_ATTR { return lanes.load(x); }) /
             static_cast<Sum>(cols);
    }
    const auto center = hn::Set(Tag(), mean);
    const Sum squares = sum_of_terms<T>(cols, [&](auto lanes) HWY_ATTR {
      auto v = lanes.load(x);
      if constexpr (kIsCentered) v = hn::Sub(v, center);
      return hn::Mul(v, v);
    });
    rstd = Sum{1} / std::sqrt(squares / static_cast<Sum>(cols) + eps);
    if (gamma != nullptr) {
      beta != nullptr ? write<true, true>(x, y) : write<true, false>(x, y);
    } else {
      beta != nullptr ? write<false, true>(x, y) : write<false, false>(x, y);
    }
  }

  template <bool kHasGamma, bool kHasBeta>
  void write(const T* x, T* y) const {
    const auto center = hn::Set(Tag(), mean), factor = hn::Set(Tag(), rstd);
    store_row(y, cols, is_streamed, [&](auto lanes, int64_t i) HWY_ATTR {
      if (cols <= kNearElements) prefetch(x + i + lanes.at, cols);
      auto v = lanes.load(x + i);
      if constexpr (kIsCentered) v = hn::Sub(v, center);
      v = hn::Mul(v, factor);
      if constexpr (kHasGamma) v = hn::Mul(v, lanes.load(gamma + i));
      if constexpr (kHasBeta) v = hn::Add(v, lanes.load(beta + i));
      return v;
    });
  }

  int64_t cols;
  Sum eps;
  const T *gamma, *beta;
  bool is_streamed;
  mutable Sum mean, rstd;  // Those of the latest row.
};

template <typename T, bool kIsCentered>
void run_rows(const NormRows& norm, int thread_count) {
  using Sum = Compute<T>;
  const int64_t cols = norm.shape.cols;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, cols));
  const int64_t size_bytes = norm.shape.rows * cols * static_cast<int64_t>(sizeof(T));
  const bool is_streamed =
      2 * size_bytes >= kStreamBytes && cols >= kBlock && norm.x.at<T>(0) != norm.y.at<T>(0);
  parallel_for(thread_count, norm.shape.rows, grain, [&](int64_t begin, int64_t end) {
    const RowNorm<T, kIsCentered> row_norm = {cols,
                                              static_cast<Sum>(norm.eps),
                                              reinterpret_cast<const T*>(norm.gamma),
                                              reinterpret_cast<const T*>(norm.beta),
                                              is_streamed,
                                              Sum{},
                                              Sum{}};
    for (int64_t row = begin; row < end; ++row) {
      row_norm.run(norm.x.at<const T>(row), norm.y.at<T>(row));
      if (norm.has_mean) *norm.mean.at<Sum>(row) = row_norm.mean;
      if (norm.has_rstd) *norm.rstd.at<Sum>(row) = row_norm.rstd;
    }
    hwy::FlushStream();
  });
}

void run_any(const NormRows& norm, int thread_count) {
  const auto run = [&]<typename T>(T) {
    norm.shape.is_centered ? run_rows<T, true>(norm, thread_count)
                           : run_rows<T, false>(norm, thread_count);
  };
  with_float(norm.shape.dtype, run);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_any);

}  // namespace

void run_norm(const NormRows& norm, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_any)(norm, thread_count);
}

}  // namespace bp::kernels
#endif
