// There are three passes over each row: the largest element, the sum of exp(x - largest), and the
// result. The exponentials of a short row are kept in a buffer until the third pass, so that the
// result can be written past the caches. The exponentials of a longer row are kept in the place of
// the result, if it holds all their digits; else they are computed again. f16 and bf16 are rounded
// only in the third pass. A row that fits into a vector stays in it from the first pass to the
// last.
//
// If the sums run over columns, each pass goes row by row over many columns side by side, and the
// exponentials are computed twice. x is then read three times in order, and the result is written
// once. When one column was walked at a time, (4096, 1024) took five times as long.
//
// oneDNN's softmax is not used, because it gives 0 for the other elements of a row with NaN or
// +inf.
#include "backends/host_kernels/softmax_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/softmax_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/row_store-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The number of exponentials that a row keeps in a buffer.
constexpr int64_t kKeptElements = 4096;

// Returns the largest element, or NaN if the result of the row is NaN.
template <typename T>
Compute<T> row_peak(const T* x, int64_t count) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const auto lowest = hn::Set(d, -kInfinity<Sum>);
  auto peak = lowest;
  auto is_number = hn::Eq(peak, peak);
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    const auto v = lanes.fill_rest(lanes.load(x), lowest);
    is_number = hn::And(is_number, hn::Eq(v, v));
    peak = hn::Max(peak, v);
  });
  const Sum largest = hn::GetLane(hn::MaxOfLanes(d, peak));
  return hn::AllTrue(d, is_number) && std::isfinite(largest) ? largest : kNaN<Sum>;
}

// Returns the sum of kExpScale * exp(x - peak), and stores the terms in `terms` if it is not NULL.
// It prefetches what follows a short row, because the hardware prefetcher stops at the end of a
// page, where the next row often begins.
template <bool kStores, typename T>
Compute<T> sum_of_exp(const T* x, Compute<T>* terms, int64_t count, Compute<T> peak) {
  const ComputeTag<T> d;
  const auto shift = hn::Set(d, peak);
  const double total = sum_of_blocks<T>(count, [&](int64_t begin, int64_t n) HWY_ATTR {
    auto sum = hn::Zero(d);
    for_each_lanes<T>(n, [&](auto lanes) HWY_ATTR {
      if (count <= kKeptElements) prefetch(x + begin + lanes.at, count);
      const auto power = scaled_exp_of_negative(d, hn::Sub(lanes.load(x + begin), shift));
      const auto term = lanes.clear_rest(power);
      if constexpr (kStores) lanes.store(term, terms + begin);
      sum = hn::Add(sum, term);
    });
    return sum;
  });
  return std::isnan(peak) ? kNaN<Compute<T>> : static_cast<Compute<T>>(total);
}

template <typename T>
void softmax_row(const T* x, T* y, int64_t count, bool is_streamed) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const Sum peak = row_peak(x, count);
  if (count <= kKeptElements) {
    HWY_ALIGN Sum kept[kKeptElements];
    const auto scale = hn::Set(d, Sum{1} / sum_of_exp<true>(x, kept, count, peak));
    store_row(y, count, is_streamed,
              [&](auto lanes, int64_t i) HWY_ATTR { return hn::Mul(lanes.load(kept + i), scale); });
  } else if constexpr (std::is_same_v<T, Sum>) {
    const auto scale = hn::Set(d, Sum{1} / sum_of_exp<true>(x, y, count, peak));
    store_row(y, count, false,
              [&](auto lanes, int64_t) HWY_ATTR { return hn::Mul(lanes.load(y), scale); });
  } else {
    const Sum sum = sum_of_exp<false>(x, static_cast<Sum*>(nullptr), count, peak);
    const auto scale = hn::Set(d, Sum{1} / sum), shift = hn::Set(d, peak);
    store_row(y, count, is_streamed, [&](auto lanes, int64_t i) HWY_ATTR {
      return hn::Mul(scaled_exp_of_negative(d, hn::Sub(lanes.load(x + i), shift)), scale);
    });
  }
}

// Computes rows that are no longer than a vector, with the bits of softmax_row(). Nothing waits for
// the row before, so that the processor works on several rows at once: (100000, 10) takes less than
// half of the time of softmax_row().
template <typename T>
void softmax_vectors(const T* x, T* y, int64_t rows, int64_t count) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const auto infinity = hn::Set(d, kInfinity<Sum>);
  for (int64_t row = 0; row < rows; ++row, x += count, y += count) {
    for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
      prefetch(x, kAheadBytes / int64_t{sizeof(T)});
      const auto v = lanes.fill_rest(lanes.load(x), hn::Neg(infinity));
      const auto peak = hn::MaxOfLanes(d, v);
      const auto is_usual = hn::And(hn::Eq(v, v), hn::Lt(hn::Abs(peak), infinity));
      if (HWY_UNLIKELY(!hn::AllTrue(d, is_usual))) return softmax_row(x, y, count, false);
      const auto terms = lanes.clear_rest(scaled_exp_of_negative(d, hn::Sub(v, peak)));
      const auto sum = hn::SumOfLanes(d, terms);
      lanes.store(hn::Mul(terms, hn::Div(hn::Set(d, Sum{1}), sum)), y);
    });
  }
}

template <typename T>
void log_softmax_row(const T* x, T* y, int64_t count, bool is_streamed) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const Sum peak = row_peak(x, count);
  const Sum sum = sum_of_exp<false>(x, static_cast<Sum*>(nullptr), count, peak);
  const auto shift = hn::Set(d, peak), log_sum = hn::Set(d, std::log(sum / kExpScale<Sum>));
  store_row(y, count, is_streamed, [&](auto lanes, int64_t i) HWY_ATTR {
    return hn::Sub(hn::Sub(lanes.load(x + i), shift), log_sum);
  });
}

// The number of columns that are walked side by side.
constexpr int64_t kColumns = 1024;

// The largest element of each of n <= kColumns columns, and the sum of kExpScale * exp(x - peak).
// Both are NaN if the result of the column is NaN.
template <typename T>
struct ColumnSums {
  using Sum = Compute<T>;

  void take(const T* x, int64_t count, int64_t stride, int64_t n) {
    std::fill_n(peaks, n, -kInfinity<Sum>);
    std::fill_n(sums, n, Sum{0});
    for (int64_t row = 0; row < count; ++row) {
      for_each_lanes<T>(n, [&](auto lanes) HWY_ATTR {
        const auto v = lanes.load(x + row * stride), peak = lanes.load(peaks);
        const auto is_more = hn::Or(hn::Lt(peak, v), hn::IsNaN(v));
        lanes.store(hn::IfThenElse(is_more, v, peak), peaks);
      });
    }
    for (int64_t row = 0; row < count; row += kSumRows) {
      add_rows(x + row * stride, std::min(kSumRows, count - row), stride, n);
      if (count <= kSumRows) break;
      for (int64_t i = 0; i < n; ++i) {
        totals[i] = (row == 0 ? 0 : totals[i]) + static_cast<double>(sums[i]);
        sums[i] = 0;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      if (count > kSumRows) sums[i] = static_cast<Sum>(totals[i]);
      if (!std::isfinite(peaks[i])) sums[i] = kNaN<Sum>;
    }
  }

  // Adds the exponentials of some rows to the sums.
  void add_rows(const T* x, int64_t count, int64_t stride, int64_t n) {
    const ComputeTag<T> d;
    for (int64_t row = 0; row < count; ++row) {
      for_each_lanes<T>(n, [&](auto lanes) HWY_ATTR {
        const auto v = hn::Sub(lanes.load(x + row * stride), lanes.load(peaks));
        lanes.store(hn::Add(lanes.load(sums), scaled_exp_of_negative(d, v)), sums);
      });
    }
  }

  // Each array has its own cache lines, although columns of a narrow dtype leave room there.
  HWY_ALIGN Sum peaks[kColumns];
  HWY_ALIGN Sum sums[kColumns];
  double totals[kColumns];  // For more than kSumRows rows.
};

// Computes the columns [0, n) of (count, stride). n is at most kColumns.
template <bool kIsLog, typename T>
void softmax_columns(const T* x, T* y, int64_t count, int64_t stride, int64_t n, bool is_streamed) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  ColumnSums<T> of;
  of.take(x, count, stride, n);
  Sum* const factors = of.sums;
  for (int64_t i = 0; i < n; ++i) {
    factors[i] = kIsLog ? std::log(of.sums[i] / kExpScale<Sum>) : Sum{1} / of.sums[i];
  }
  for (int64_t row = 0; row < count; ++row) {
    const T* const from = x + row * stride;
    store_row(y + row * stride, n, is_streamed, [&](auto lanes, int64_t i) HWY_ATTR {
      const auto v = hn::Sub(lanes.load(from + i), lanes.load(of.peaks + i));
      const auto factor = lanes.load(factors + i);
      if constexpr (kIsLog) return hn::Sub(v, factor);
      return hn::Mul(scaled_exp_of_negative(d, v), factor);
    });
  }
}

constexpr int64_t kGrainElements = 4096;  // An exp takes about as long as eight additions.

template <bool kIsLog, typename T>
void run(const T* x, T* y, const SoftmaxExtents& e, int thread_count) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, e.count));
  const int64_t size_bytes = e.outer * e.count * e.inner * static_cast<int64_t>(sizeof(T));
  const bool is_streamed = x != y && 2 * size_bytes >= kStreamBytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  if (!kIsLog && e.inner == 1 && e.count <= lanes && !is_streamed) {
    return parallel_for(thread_count, e.outer, grain, [&](int64_t begin, int64_t end) {
      softmax_vectors(x + begin * e.count, y + begin * e.count, end - begin, e.count);
    });
  }
  if (e.inner == 1) {
    return parallel_for(thread_count, e.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * e.count; at < end * e.count; at += e.count) {
        if constexpr (kIsLog) {
          log_softmax_row(x + at, y + at, e.count, is_streamed);
        } else {
          softmax_row(x + at, y + at, e.count, is_streamed);
        }
      }
      hwy::FlushStream();
    });
  }
  parallel_for(thread_count, e.outer * e.inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t col = begin, n = 0; col < end; col += n) {
      const int64_t inner = col % e.inner, at = (col - inner) * e.count + inner;
      n = std::min({kColumns, e.inner - inner, end - col});
      softmax_columns<kIsLog>(x + at, y + at, e.count, e.inner, n, is_streamed && n >= kBlock);
    }
    hwy::FlushStream();
  });
}

template <bool kIsLog>
void run_any(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
             int thread_count) {
  const auto run_as = [&]<typename T>(T) {
    run<kIsLog>(reinterpret_cast<const T*>(x), reinterpret_cast<T*>(y), e, thread_count);
  };
  with_float(dtype, run_as);
}

// HWY_EXPORT needs functions that are not templates.
void softmax(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
             int thread_count) {
  run_any<false>(dtype, x, y, e, thread_count);
}
void log_softmax(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
                 int thread_count) {
  run_any<true>(dtype, x, y, e, thread_count);
}

template <typename T>
double log_sum_exp_row(const T* x, int64_t count) {
  using Sum = Compute<T>;
  const Sum peak = row_peak(x, count);
  const Sum sum = sum_of_exp<false>(x, static_cast<Sum*>(nullptr), count, peak);
  return static_cast<double>(peak) + std::log(static_cast<double>(sum / kExpScale<Sum>));
}
double log_sum_exp_f32(const float* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_f64(const double* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_f16(const Float16* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_bf16(const BFloat16* x, int64_t count) { return log_sum_exp_row(x, count); }

template <typename T, typename Sum = Compute<T>>
void scaled_exp_row(const T* x, T* y, int64_t count, Sum shift, Sum base, Sum scale) {
  const ComputeTag<T> d;
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    const auto power = exp(d, hn::Sub(lanes.load(x), hn::Set(d, shift)));
    lanes.store(hn::Mul(hn::Set(d, scale), hn::Sub(power, hn::Set(d, base))), y);
  });
}
void scaled_exp_f32(const float* x, float* y, int64_t count, float shift, float base, float scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}
void scaled_exp_f64(const double* x, double* y, int64_t count, double shift, double base,
                    double scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}
void scaled_exp_f16(const Float16* x, Float16* y, int64_t count, float shift, float base,
                    float scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}
void scaled_exp_bf16(const BFloat16* x, BFloat16* y, int64_t count, float shift, float base,
                     float scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(softmax);
HWY_EXPORT(log_softmax);
HWY_EXPORT(log_sum_exp_f32);
HWY_EXPORT(log_sum_exp_f64);
HWY_EXPORT(log_sum_exp_f16);
HWY_EXPORT(log_sum_exp_bf16);
HWY_EXPORT(scaled_exp_f32);
HWY_EXPORT(scaled_exp_f64);
HWY_EXPORT(scaled_exp_f16);
HWY_EXPORT(scaled_exp_bf16);

}  // namespace

void softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
                   int thread_count) {
  HWY_DYNAMIC_DISPATCH(softmax)(dtype, x, y, e, thread_count);
}
void log_softmax_dense(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
                       int thread_count) {
  HWY_DYNAMIC_DISPATCH(log_softmax)(dtype, x, y, e, thread_count);
}

double log_sum_exp(const float* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f32)(x, count);
}
double log_sum_exp(const double* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f64)(x, count);
}
double log_sum_exp(const Float16* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f16)(x, count);
}
double log_sum_exp(const BFloat16* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_bf16)(x, count);
}

void scaled_exp(const float* x, float* y, int64_t count, float shift, float base, float scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_f32)(x, y, count, shift, base, scale);
}
void scaled_exp(const double* x, double* y, int64_t count, double shift, double base,
                double scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_f64)(x, y, count, shift, base, scale);
}
void scaled_exp(const Float16* x, Float16* y, int64_t count, float shift, float base, float scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_f16)(x, y, count, shift, base, scale);
}
void scaled_exp(const BFloat16* x, BFloat16* y, int64_t count, float shift, float base,
                float scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_bf16)(x, y, count, shift, base, scale);
}

}  // namespace bp::kernels
#endif
