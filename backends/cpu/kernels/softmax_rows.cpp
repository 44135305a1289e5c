// Three passes over each row: the largest element, the sum of exp(x - largest), the result. exp()
// is Highway's, at most 1 ulp wrong for f32 and f64; it knows no NaN, so the second pass finds what
// is not finite, and the third multiplies by NaN then.
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

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;

template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The last elements of a row, `count` of them, and -inf behind: it changes no maximum, and its exp
// is 0.
template <class D, typename T = hn::TFromD<D>>
hn::Vec<D> load_tail(D d, const T* from, int64_t count) {
  alignas(64) T lanes[hn::MaxLanes(D())];
  std::fill_n(std::copy_n(from, count, lanes), static_cast<int64_t>(hn::Lanes(d)) - count,
              -kInfinity<T>);
  return hn::Load(d, lanes);
}

template <class D, typename T = hn::TFromD<D>>
void store_tail(D d, hn::Vec<D> value, T* to, int64_t count) {
  alignas(64) T lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  std::copy_n(lanes, count, to);
}

// Calls fn(vector) for the row, and stores what it returns if `to` is not NULL.
template <bool kStores, class D, typename T, typename Fn>
void for_each_vector(D d, const T* from, [[maybe_unused]] T* to, int64_t count, Fn&& fn) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    [[maybe_unused]] const auto result = fn(hn::LoadU(d, from + i));
    if constexpr (kStores) hn::StoreU(result, d, to + i);
  }
  if (i == count) return;
  [[maybe_unused]] const auto result = fn(load_tail(d, from + i, count - i));
  if constexpr (kStores) store_tail(d, result, to + i, count - i);
}

// The largest element, or NaN where the row gives NaN.
template <typename T>
T row_peak(const T* x, int64_t count) {
  const Tag<T> d;
  auto peak = hn::Set(d, -kInfinity<T>);
  auto is_number = hn::Eq(peak, peak);
  for_each_vector<false>(d, x, static_cast<T*>(nullptr), count, [&](auto v) {
    is_number = hn::And(is_number, hn::Eq(v, v));
    return peak = hn::Max(peak, v);
  });
  const T largest = hn::GetLane(hn::MaxOfLanes(d, peak));
  return hn::AllTrue(d, is_number) && std::isfinite(largest) ? largest : kNaN<T>;
}

// The sum of exp(x - peak), and the terms in y if it is not NULL.
template <bool kStores, typename T>
T sum_of_exp(const T* x, T* y, int64_t count, T peak) {
  const Tag<T> d;
  const auto shift = hn::Set(d, peak);
  auto sum = hn::Zero(d);
  for_each_vector<kStores>(d, x, y, count, [&](auto v) {
    const auto term = hn::Exp(d, hn::Sub(v, shift));
    sum = hn::Add(sum, term);
    return term;
  });
  return std::isnan(peak) ? kNaN<T> : hn::GetLane(hn::SumOfLanes(d, sum));
}

template <typename T>
void softmax_row(const T* x, T* y, int64_t count) {
  const T sum = sum_of_exp<true>(x, y, count, row_peak(x, count));
  const Tag<T> d;
  const auto scale = hn::Set(d, T{1} / sum);
  for_each_vector<true>(d, y, y, count, [&](auto v) { return hn::Mul(v, scale); });
}

template <typename T>
void log_softmax_row(const T* x, T* y, int64_t count) {
  const T peak = row_peak(x, count);
  const T sum = sum_of_exp<false>(x, static_cast<T*>(nullptr), count, peak);
  const Tag<T> d;
  const auto shift = hn::Set(d, peak), log_sum = hn::Set(d, std::log(sum));
  for_each_vector<true>(d, x, y, count,
                        [&](auto v) { return hn::Sub(hn::Sub(v, shift), log_sum); });
}

// The first columns of (count, stride), one in each lane.
template <bool kIsLog, class D, typename T = hn::TFromD<D>>
void softmax_columns(D d, const T* x, T* y, int64_t count, int64_t stride) {
  auto peak = hn::Set(d, -kInfinity<T>);
  auto is_number = hn::Eq(peak, peak);
  for (int64_t i = 0; i < count; ++i) {
    const auto v = hn::LoadU(d, x + i * stride);
    is_number = hn::And(is_number, hn::Eq(v, v));
    peak = hn::Max(peak, v);
  }
  is_number = hn::And(is_number, hn::Lt(hn::Abs(peak), hn::Set(d, kInfinity<T>)));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; ++i) {
    const auto term = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i * stride), peak));
    if constexpr (!kIsLog) hn::StoreU(term, d, y + i * stride);
    sum = hn::Add(sum, term);
  }
  sum = hn::IfThenElse(is_number, sum, hn::Set(d, kNaN<T>));
  if constexpr (kIsLog) {
    alignas(64) T lanes[hn::MaxLanes(D())];
    hn::Store(sum, d, lanes);
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) lanes[lane] = std::log(lanes[lane]);
    sum = hn::Load(d, lanes);
  } else {
    sum = hn::Div(hn::Set(d, T{1}), sum);
  }
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kIsLog) {
      hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i * stride), peak), sum), d, y + i * stride);
    } else {
      hn::StoreU(hn::Mul(hn::LoadU(d, y + i * stride), sum), d, y + i * stride);
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
  const Tag<T> d;
  const hn::CappedTag<T, 1> one;
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

// What HWY_EXPORT can take: functions that are not templates.
void softmax_f32(const float* x, float* y, const SoftmaxExtents& e, int thread_count) {
  run<false>(x, y, e, thread_count);
}
void softmax_f64(const double* x, double* y, const SoftmaxExtents& e, int thread_count) {
  run<false>(x, y, e, thread_count);
}
void log_softmax_f32(const float* x, float* y, const SoftmaxExtents& e, int thread_count) {
  run<true>(x, y, e, thread_count);
}
void log_softmax_f64(const double* x, double* y, const SoftmaxExtents& e, int thread_count) {
  run<true>(x, y, e, thread_count);
}

template <typename T>
double log_sum_exp_row(const T* x, int64_t count) {
  const T peak = row_peak(x, count);
  const T sum = sum_of_exp<false>(x, static_cast<T*>(nullptr), count, peak);
  return static_cast<double>(peak) + std::log(static_cast<double>(sum));
}
double log_sum_exp_f32(const float* x, int64_t count) { return log_sum_exp_row(x, count); }
double log_sum_exp_f64(const double* x, int64_t count) { return log_sum_exp_row(x, count); }

template <typename T>
void scaled_exp_row(const T* x, T* y, int64_t count, T shift, T base, T scale) {
  const Tag<T> d;
  const auto limit = hn::Set(d, std::log(std::numeric_limits<T>::max()));
  for_each_vector<true>(d, x, y, count, [&](auto v) {
    const auto exponent = hn::Sub(v, hn::Set(d, shift));
    auto power = hn::Exp(d, exponent);
    power = hn::IfThenElse(hn::Gt(exponent, limit), hn::Set(d, kInfinity<T>), power);
    power = hn::IfThenElse(hn::Eq(exponent, exponent), power, exponent);
    return hn::Mul(hn::Set(d, scale), hn::Sub(power, hn::Set(d, base)));
  });
}
void scaled_exp_f32(const float* x, float* y, int64_t count, float shift, float base, float scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}
void scaled_exp_f64(const double* x, double* y, int64_t count, double shift, double base,
                    double scale) {
  scaled_exp_row(x, y, count, shift, base, scale);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);
HWY_EXPORT(log_softmax_f32);
HWY_EXPORT(log_softmax_f64);
HWY_EXPORT(log_sum_exp_f32);
HWY_EXPORT(log_sum_exp_f64);
HWY_EXPORT(scaled_exp_f32);
HWY_EXPORT(scaled_exp_f64);

}  // namespace

void softmax_dense(const float* x, float* y, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(softmax_f32)(x, y, e, thread_count);
}
void softmax_dense(const double* x, double* y, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(softmax_f64)(x, y, e, thread_count);
}
void log_softmax_dense(const float* x, float* y, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(log_softmax_f32)(x, y, e, thread_count);
}
void log_softmax_dense(const double* x, double* y, const SoftmaxExtents& e, int thread_count) {
  HWY_DYNAMIC_DISPATCH(log_softmax_f64)(x, y, e, thread_count);
}
double log_sum_exp(const float* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f32)(x, count);
}
double log_sum_exp(const double* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f64)(x, count);
}
void scaled_exp(const float* x, float* y, int64_t count, float shift, float base, float scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_f32)(x, y, count, shift, base, scale);
}
void scaled_exp(const double* x, double* y, int64_t count, double shift, double base,
                double scale) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_f64)(x, y, count, shift, base, scale);
}

}  // namespace bp::kernels
#endif
