// Computes norms of rows. Two passes over a row, which is then in the first-level cache, compute
// the mean, and the mean of the squared differences from it. A third pass writes the result and
// prefetches the next row. A result that does not stay in the caches is written past them. The
// first pass widens a short row of 16-bit floats for the others, and gamma and beta are widened
// once.
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

// Short rows of 16-bit floats, widened.
template <typename T>
struct WideRows {
  using Sum = Compute<T>;

  WideRows(int64_t cols, const T* gamma, const T* beta) {
    if (gamma != nullptr) widen_row(gamma, cols, of_gamma);
    if (beta != nullptr) widen_row(beta, cols, of_beta);
  }
  static void widen_row(const T* from, int64_t n, Sum* to) {
    for_each_lanes<T>(n, [=](auto lanes) HWY_ATTR { lanes.store(lanes.load(from), to); });
  }

  alignas(64) Sum of_x[kNearElements], of_gamma[kNearElements], of_beta[kNearElements];
};

template <typename T, bool kIsCentered>
struct RowNorm {
  using Sum = Compute<T>;
  using Tag = ComputeTag<T>;

  // Computes one row. y may be x.
  void run(const T* x, T* y) const {
    Sum sum{0};
    if constexpr (kIsCentered) {
      sum = sum_of_terms<T>(cols, [&](auto lanes) HWY_ATTR { return lanes.load(x); });
    }
    finish(sum, x, gamma, beta, x, y);
  }

  // Does the same for a short row.
  void run_wide(const T* x, WideRows<T>& wide, T* y) const {
    Sum* const row = wide.of_x;
    const Sum sum = sum_of_terms<T>(cols, [&](auto lanes) HWY_ATTR {
      const auto v = lanes.load(x);
      lanes.store(v, row);
      return v;
    });
    finish(sum, row, gamma == nullptr ? nullptr : wide.of_gamma,
           beta == nullptr ? nullptr : wide.of_beta, x, y);
  }

  // Computes a row with this sum, whose elements are read from `row`. It lies at x in memory.
  template <typename From>
  void finish(Sum sum, const From* row, const From* factors, const From* shifts, const T* x,
              T* y) const {
    mean = kIsCentered ? sum / static_cast<Sum>(cols) : Sum{0};
    const auto center = hn::Set(Tag(), mean);
    const Sum squares = sum_of_terms<T>(cols, [&](auto lanes) HWY_ATTR {
      auto v = lanes.load(row);
      if constexpr (kIsCentered) v = hn::Sub(v, center);
      return hn::Mul(v, v);
    });
    rstd = Sum{1} / std::sqrt(squares / static_cast<Sum>(cols) + eps);
    if (factors != nullptr) {
      shifts != nullptr ? write<true, true>(row, factors, shifts, x, y)
                        : write<true, false>(row, factors, shifts, x, y);
    } else {
      shifts != nullptr ? write<false, true>(row, factors, shifts, x, y)
                        : write<false, false>(row, factors, shifts, x, y);
    }
  }

  template <bool kHasGamma, bool kHasBeta, typename From>
  void write(const From* row, const From* factors, const From* shifts, const T* x, T* y) const {
    const auto center = hn::Set(Tag(), mean), factor = hn::Set(Tag(), rstd);
    store_row(y, cols, is_streamed, [&](auto lanes, int64_t i) HWY_ATTR {
      if (cols <= kNearElements) prefetch(x + i + lanes.at, cols);
      auto v = lanes.load(row + i);
      if constexpr (kIsCentered) v = hn::Sub(v, center);
      v = hn::Mul(v, factor);
      if constexpr (kHasGamma) v = hn::Mul(v, lanes.load(factors + i));
      if constexpr (kHasBeta) v = hn::Add(v, lanes.load(shifts + i));
      return v;
    });
  }

  int64_t cols;
  Sum eps;
  const T *gamma, *beta;
  bool is_streamed;
  mutable Sum mean, rstd;  // Those of the latest row.
};

// Computes `rows` rows of a thread, which for_each_row(run) gives to run(x, y).
template <typename T, bool kIsCentered, class ForEachRow>
void run_range(const RowNorm<T, kIsCentered>& norm, int64_t rows, const ForEachRow& for_each_row) {
  constexpr int64_t kFewestWideRows = 4;  // For fewer it takes too long to widen gamma and beta.
  if constexpr (kIsNarrow<T> && kIsCentered) {
    if (norm.cols <= kNearElements && rows >= kFewestWideRows) {
      WideRows<T> wide(norm.cols, norm.gamma, norm.beta);
      return for_each_row([&](const T* x, T* y) { norm.run_wide(x, wide, y); });
    }
  }
  for_each_row([&](const T* x, T* y) { norm.run(x, y); });
}

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
    const auto for_each_row = [&](const auto& run) {
      for (int64_t row = begin; row < end; ++row) {
        run(norm.x.at<const T>(row), norm.y.at<T>(row));
        if (norm.has_mean) *norm.mean.at<Sum>(row) = row_norm.mean;
        if (norm.has_rstd) *norm.rstd.at<Sum>(row) = row_norm.rstd;
      }
    };
    run_range(row_norm, end - begin, for_each_row);
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
