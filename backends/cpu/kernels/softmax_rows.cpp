// Three passes over each row: the largest element, the sum of exp(x - largest), the result. exp()
// is Highway's, at most 1 ulp wrong for f32 and f64; it knows no NaN, so the second pass finds what
// is not finite, and the third multiplies by NaN then. f16 and bf16 are rounded in the third alone:
// the exponentials of the first elements of a row wait in a buffer for it, the others are computed
// again.
//
// oneDNN has a softmax too. It is not used: NaN and +inf in a row leave the row's other elements 0.
#include "backends/cpu/kernels/softmax_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/softmax_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// Exponentials that a row of a narrow dtype keeps.
constexpr int64_t kKeptElements = 4096;

// The largest element, or NaN where the row gives NaN.
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

// The sum of exp(x - peak), and the terms in `terms` if it is not NULL.
template <bool kStores, typename T>
Compute<T> sum_of_exp(const T* x, Compute<T>* terms, int64_t count, Compute<T> peak) {
  const ComputeTag<T> d;
  const auto shift = hn::Set(d, peak);
  auto sum = hn::Zero(d);
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    const auto term = lanes.clear_rest(hn::Exp(d, hn::Sub(lanes.load(x), shift)));
    if constexpr (kStores) lanes.store(term, terms);
    sum = hn::Add(sum, term);
  });
  return std::isnan(peak) ? kNaN<Compute<T>> : hn::GetLane(hn::SumOfLanes(d, sum));
}

template <typename T>
void softmax_row(const T* x, T* y, int64_t count) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const Sum peak = row_peak(x, count);
  if constexpr (std::is_same_v<T, Sum>) {
    const auto scale = hn::Set(d, Sum{1} / sum_of_exp<true>(x, y, count, peak));
    for_each_lanes<T>(count,
                      [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(y), scale), y); });
  } else {
    HWY_ALIGN Sum kept[kKeptElements];
    const int64_t first = std::min(count, kKeptElements);
    const Sum sum = sum_of_exp<true>(x, kept, first, peak) +
                    sum_of_exp<false>(x + first, kept, count - first, peak);
    const auto scale = hn::Set(d, Sum{1} / sum), shift = hn::Set(d, peak);
    for_each_lanes<T>(
        first, [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(kept), scale), y); });
    x += first;
    y += first;
    for_each_lanes<T>(count - first, [&](auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(hn::Exp(d, hn::Sub(lanes.load(x), shift)), scale), y);
    });
  }
}

template <typename T>
void log_softmax_row(const T* x, T* y, int64_t count) {
  using Sum = Compute<T>;
  const ComputeTag<T> d;
  const Sum peak = row_peak(x, count);
  const Sum sum = sum_of_exp<false>(x, static_cast<Sum*>(nullptr), count, peak);
  const auto shift = hn::Set(d, peak), log_sum = hn::Set(d, std::log(sum));
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    lanes.store(hn::Sub(hn::Sub(lanes.load(x), shift), log_sum), y);
  });
}

// The first columns of (count, stride), one in each lane.
template <bool kIsLog, class D, typename T>
void softmax_columns(D d, const T* x, T* y, int64_t count, int64_t stride) {
  using Sum = Compute<T>;
  constexpr bool kStores = !kIsLog && std::is_same_v<T, Sum>;
  auto peak = hn::Set(d, -kInfinity<Sum>);
  auto is_number = hn::Eq(peak, peak);
  for (int64_t i = 0; i < count; ++i) {
    const auto v = load_lanes(d, x + i * stride);
    is_number = hn::And(is_number, hn::Eq(v, v));
    peak = hn::Max(peak, v);
  }
  is_number = hn::And(is_number, hn::Lt(hn::Abs(peak), hn::Set(d, kInfinity<Sum>)));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; ++i) {
    const auto term = hn::Exp(d, hn::Sub(load_lanes(d, x + i * stride), peak));
    if constexpr (kStores) store_lanes(term, d, y + i * stride);
    sum = hn::Add(sum, term);
  }
  sum = hn::IfThenElse(is_number, sum, hn::Set(d, kNaN<Sum>));
  if constexpr (kIsLog) {
    alignas(64) Sum lanes[hn::MaxLanes(D())];
    hn::Store(sum, d, lanes);
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) lanes[lane] = std::log(lanes[lane]);
    sum = hn::Load(d, lanes);
  } else {
    sum = hn::Div(hn::Set(d, Sum{1}), sum);
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto v = load_lanes(d, (kStores ? y : x) + i * stride);
    if constexpr (kIsLog) {
      store_lanes(hn::Sub(hn::Sub(v, peak), sum), d, y + i * stride);
    } else if constexpr (kStores) {
      store_lanes(hn::Mul(v, sum), d, y + i * stride);
    } else {
      store_lanes(hn::Mul(hn::Exp(d, hn::Sub(v, peak)), sum), d, y + i * stride);
    }
  }
}

constexpr int64_t kGrainElements = 4096;  // An exp takes about as long as eight additions.

template <bool kIsLog, typename T>
void run(const T* x, T* y, const SoftmaxExtents& e, int thread_count) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, e.count));
  if (e.inner == 1) {
    return parallel_for(thread_count, e.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if constexpr (kIsLog) {
          log_softmax_row(x + row * e.count, y + row * e.count, e.count);
        } else {
          softmax_row(x + row * e.count, y + row * e.count, e.count);
        }
      }
    });
  }
  const ComputeTag<T> d;
  const hn::CappedTag<Compute<T>, 1> one;
  parallel_for(thread_count, e.outer * e.inner, grain, [&](int64_t begin, int64_t end) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t col = begin; col < end;) {
      const int64_t inner = col % e.inner;
      const int64_t offset = (col - inner) * e.count + inner;
      if (std::min(e.inner - inner, end - col) >= lanes) {
        softmax_columns<kIsLog>(d, x + offset, y + offset, e.count, e.inner);
        col += lanes;
      } else {
        softmax_columns<kIsLog>(one, x + offset, y + offset, e.count, e.inner);
        ++col;
      }
    }
  });
}

template <bool kIsLog>
void run_any(bp_dtype dtype, const std::byte* x, std::byte* y, const SoftmaxExtents& e,
             int thread_count) {
  const auto run_as = [&]<typename T>(T) {
    run<kIsLog>(reinterpret_cast<const T*>(x), reinterpret_cast<T*>(y), e, thread_count);
  };
  switch (dtype) {
    case BP_F16:
      return run_as(Float16{});
    case BP_BF16:
      return run_as(BFloat16{});
    case BP_F64:
      return run_as(double{});
    default:
      return run_as(float{});
  }
}

// What HWY_EXPORT can take: functions that are not templates.
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
  return static_cast<double>(peak) + std::log(static_cast<double>(sum));
}
double log_sum_exp_f32(const float* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_f64(const double* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_f16(const Float16* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_bf16(const BFloat16* x, int64_t count) { return log_sum_exp_row(x, count); }

template <typename T, typename Sum = Compute<T>>
void scaled_exp_row(const T* x, T* y, int64_t count, Sum shift, Sum base, Sum scale) {
  const ComputeTag<T> d;
  const auto limit = hn::Set(d, std::log(std::numeric_limits<Sum>::max()));
  for_each_lanes<T>(count, [&](auto lanes) HWY_ATTR {
    const auto exponent = hn::Sub(lanes.load(x), hn::Set(d, shift));
    auto power = hn::Exp(d, exponent);
    power = hn::IfThenElse(hn::Gt(exponent, limit), hn::Set(d, kInfinity<Sum>), power);
    power = hn::IfThenElse(hn::Eq(exponent, exponent), power, exponent);
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
