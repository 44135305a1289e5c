// norm of order 0, 1, 2, inf and -inf, over any axes, for tensors of every layout (reduce.hpp). The
// host decomposes the other orders, which need powers.
//
// Terms and totals are in f64. The square of an f32 neither overflows nor vanishes there. Elements
// of f64 are divided by the largest one before they are squared, so that their squares do not
// overflow.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/norm_reduction.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "backends/host_kernels/extreme-inl.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

#ifndef BACKPLANE_CPU_NORM_ORDER
#define BACKPLANE_CPU_NORM_ORDER
namespace bp::kernels {
namespace {

enum class Order { kZero, kOne, kTwo, kLargest, kSmallest, kOther };

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The orders. Each adds a vector of elements to totals, joins totals, and makes the norm of a
// total. `scale` is that of the totals, which is 1 if kHasScale is false.
struct CountOrder {
  static constexpr double kStart = 0;
  static constexpr bool kHasScale = false;
  template <class D, class V>
  static HWY_INLINE V add(D d, V total, V x, V) {
    return hn::Add(total, hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, 1.0)));
  }
  template <class D, class V>
  static HWY_INLINE V join(D, V total, V later) {
    return hn::Add(total, later);
  }
  static double finish(double total, double) { return total; }
};

struct SumOrder : CountOrder {
  template <class D, class V>
  static HWY_INLINE V add(D, V total, V x, V) {
    return hn::Add(total, hn::Abs(x));
  }
};

template <bool kIsScaled>
struct SquareOrder : CountOrder {
  static constexpr bool kHasScale = kIsScaled;
  template <class D, class V>
  static HWY_INLINE V add(D, V total, V x, V scale) {
    const V scaled = kIsScaled ? hn::Div(x, scale) : x;
    return hn::Add(total, hn::Mul(scaled, scaled));
  }
  static double finish(double total, double scale) { return std::sqrt(total) * scale; }
};

template <Extreme kWanted>
struct ExtremeOrder : CountOrder {
  static constexpr double kStart =
      kWanted == Extreme::kLargest ? 0 : std::numeric_limits<double>::infinity();
  template <class D, class V>
  static HWY_INLINE V add(D d, V total, V x, V) {
    return join(d, total, hn::Abs(x));
  }
  template <class D, class V>
  static HWY_INLINE V join(D d, V total, V later) {
    return hn::IfThenElse(is_better<kWanted>(d, total, later), later, total);
  }
};

template <class Op>
void start(void* totals, int64_t n) {
  std::fill_n(static_cast<double*>(totals), n, Op::kStart);
}

template <class Op>
double scale_at(const void* scales, int64_t i) {
  return Op::kHasScale ? static_cast<const double*>(scales)[i] : 1.0;
}

// Adds one element.
template <class Op>
HWY_INLINE double add_one(double total, double x, double scale) {
  const hn::CappedTag<double, 1> d;
  return hn::GetLane(Op::add(d, hn::Set(d, total), hn::Set(d, x), hn::Set(d, scale)));
}

// Adds n dense elements. Four totals take turns, so that no addition waits for the one before.
template <class Op, typename T>
double add_row(double total, const T* x, int64_t n, double scale) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  const auto add = [&](auto sum, int64_t at)
                       HWY_ATTR { return Op::add(d, sum, load_wide(d, x + at, Itself()), scales); };
  auto t0 = hn::Set(d, Op::kStart), t1 = t0, t2 = t0, t3 = t0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    // The hardware prefetcher stops at the end of a page, where the next row often begins.
    prefetch_group(x + i, kPageBytes, lanes);
    t0 = add(t0, i);
    t1 = add(t1, i + lanes);
    t2 = add(t2, i + 2 * lanes);
    t3 = add(t3, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) t0 = add(t0, i);
  HWY_ALIGN double parts[hn::MaxLanes(hn::ScalableTag<double>())];
  hn::Store(Op::join(d, Op::join(d, t0, t1), Op::join(d, t2, t3)), d, parts);
  for (int64_t k = 0; k < lanes; ++k) {
    total = hn::GetLane(Op::join(one, hn::Set(one, total), hn::Set(one, parts[k])));
  }
  for (; i < n; ++i) total = add_one<Op>(total, static_cast<double>(widen(x[i])), scale);
  return total;
}

template <class Op, typename T>
void along(void* totals, const void* scales, const std::byte* x, int64_t stride, int64_t n) {
  double& total = *static_cast<double*>(totals);
  const double scale = scale_at<Op>(scales, 0);
  if (stride == sizeof(T)) {
    total = add_row<Op>(total, reinterpret_cast<const T*>(x), n, scale);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T element = *reinterpret_cast<const T*>(x + i * stride);
    total = add_one<Op>(total, static_cast<double>(widen(element)), scale);
  }
}

template <class Op, typename T>
void across(void* totals, const void* scales, const std::byte* x, int64_t row_stride, int64_t rows,
            int64_t stride, int64_t n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* const own = static_cast<double*>(totals);
  const auto* const from_scales = static_cast<const double*>(scales);
  int64_t i = 0;
  for (; stride == sizeof(T) && i + lanes <= n; i += lanes) {
    auto total = hn::LoadU(d, own + i);
    auto scale = hn::Set(d, 1.0);
    if constexpr (Op::kHasScale) scale = hn::LoadU(d, from_scales + i);
    for (int64_t row = 0; row < rows; ++row) {
      const T* const at = reinterpret_cast<const T*>(x + row * row_stride) + i;
      total = Op::add(d, total, load_wide(d, at, Itself()), scale);
    }
    hn::StoreU(total, d, own + i);
  }
  for (; i < n; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      const T element = *reinterpret_cast<const T*>(x + row * row_stride + i * stride);
      own[i] = add_one<Op>(own[i], static_cast<double>(widen(element)), scale_at<Op>(scales, i));
    }
  }
}

template <class Op>
void combine(void* totals, const void* later, int64_t n) {
  const hn::CappedTag<double, 1> d;
  auto* const own = static_cast<double*>(totals);
  const auto* const other = static_cast<const double*>(later);
  for (int64_t i = 0; i < n; ++i) {
    own[i] = hn::GetLane(Op::join(d, hn::Set(d, own[i]), hn::Set(d, other[i])));
  }
}

template <class Op, typename T>
void finish(const void* totals, const void* scales, std::byte* y, int64_t stride, int64_t n,
            int64_t) {
  const auto* const own = static_cast<const double*>(totals);
  for (int64_t i = 0; i < n; ++i) {
    store_wide<T>(Op::finish(own[i], scale_at<Op>(scales, i)), y + i * stride);
  }
}

// Stores what elements are divided by: the largest absolute value, or 1 if that is 0, infinite or
// NaN.
void finish_scales(const void* totals, const void*, std::byte* y, int64_t stride, int64_t n,
                   int64_t) {
  const auto* const largest = static_cast<const double*>(totals);
  for (int64_t i = 0; i < n; ++i) {
    const bool can_divide = std::isfinite(largest[i]) && largest[i] > 0;
    *reinterpret_cast<double*>(y + i * stride) = can_divide ? largest[i] : 1;
  }
}

template <class Op, typename T>
Reducer reducer() {
  return {sizeof(double), start<Op>,   start<Op>,    along<Op, T>,
          across<Op, T>,  combine<Op>, finish<Op, T>};
}

Reducer square_reducer_f64() {
  using Largest = ExtremeOrder<Extreme::kLargest>;
  static constexpr Reducer kScales{
      sizeof(double),          start<Largest>,   start<Largest>, along<Largest, double>,
      across<Largest, double>, combine<Largest>, finish_scales};
  Reducer made = reducer<SquareOrder<true>, double>();
  made.shift = &kScales;
  made.shift_size_bytes = sizeof(double);
  return made;
}

template <typename T>
Reducer reducer_of(Order order) {
  switch (order) {
    case Order::kZero:
      return reducer<CountOrder, T>();
    case Order::kOne:
      return reducer<SumOrder, T>();
    case Order::kLargest:
      return reducer<ExtremeOrder<Extreme::kLargest>, T>();
    case Order::kSmallest:
      return reducer<ExtremeOrder<Extreme::kSmallest>, T>();
    default:
      break;
  }
  if constexpr (std::is_same_v<T, double>) return square_reducer_f64();
  return reducer<SquareOrder<false>, T>();
}

Reducer find_reducer(Order order, bp_dtype dtype) {
  return with_float(dtype, [order]<typename T>(T) { return reducer_of<T>(order); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_reducer);

Order order_of(double p) {
  if (p == 0) return Order::kZero;
  if (p == 1) return Order::kOne;
  if (p == 2) return Order::kTwo;
  if (std::isinf(p)) return p > 0 ? Order::kLargest : Order::kSmallest;
  return Order::kOther;
}

ReducePlan plan_of(const bp_norm_args& args) {
  return make_reduce_plan(*args.x, *args.y, axis_bits(args.axes_count, args.axes),
                          args.keepdims != 0);
}

Reducer reducer_of(const bp_norm_args& args) {
  return HWY_DYNAMIC_DISPATCH(find_reducer)(order_of(args.p), args.x->dtype);
}

bp_reason norm_supports(const bp_norm_args& args) {
  return order_of(args.p) == Order::kOther ? "p is none of 0, 1, 2, inf and -inf" : nullptr;
}

uint64_t norm_workspace(const bp_norm_args& args, const Env&) {
  ReducePlan plan = plan_of(args);
  return place_parts(plan, nullptr, reducer_of(args).shift != nullptr);
}

bp_status norm_launch(const bp_norm_args& args, Launch& launch) {
  if (const bp_reason reason = norm_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("norm: ") + reason);
  }
  ReducePlan plan = plan_of(args);
  const Reducer reducer = reducer_of(args);
  place_parts(plan, launch.workspace(), reducer.shift != nullptr);
  return launch.submit(
      [plan, reducer, threads = launch.thread_count()] { run_reduce(plan, reducer, threads); });
}

}  // namespace

extern constinit const bp_kernel kNorm =
    make_kernel<bp_norm_args, norm_launch, norm_supports, norm_workspace>(
        kernel_row("norm", BP_OP_NORM, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
