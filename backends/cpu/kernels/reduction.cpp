// sum, mean, amax and argmax over any axes, for tensors of every layout (reduce.hpp).
//
// Sums of f32 are kept in f64 and rounded once: the conversion costs nothing where memory is the
// limit, and the error does not grow with the number of elements. Sums of f64 run in 4 vectors, so
// that each lane adds a fraction of a row. Integers are added in 64 bits and wrap.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/reduction.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <limits>
#include <type_traits>

#include "backends/cpu/kernels/reduce.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// ---- Rows ---------------------------------------------------------------------------------------

// What the sum of T is kept in. Unsigned integers wrap without being undefined.
template <typename T>
using SumOf = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

template <typename T>
SumOf<T> sum_of_row(const T* x, int64_t n) {
  int64_t i = 0;
  SumOf<T> sum = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const hn::ScalableTag<double> d;
    const hn::Rebind<T, decltype(d)> narrow;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto load = [&](int64_t at) HWY_ATTR {
      if constexpr (sizeof(T) == sizeof(double)) {
        return hn::LoadU(d, x + at);
      } else {
        return hn::PromoteTo(d, hn::LoadU(narrow, x + at));
      }
    };
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      s0 = hn::Add(s0, load(i));
      s1 = hn::Add(s1, load(i + lanes));
      s2 = hn::Add(s2, load(i + 2 * lanes));
      s3 = hn::Add(s3, load(i + 3 * lanes));
    }
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  }
  for (; i < n; ++i) sum += static_cast<SumOf<T>>(x[i]);
  return sum;
}

// NaN is larger than every number; of two equal elements the first stays.
template <typename T>
HWY_INLINE T larger(T best, T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return (best < x) | (x != x) ? x : best;
  } else {
    return best < x ? x : best;
  }
}

template <typename T>
T largest_of_row(const T* x, int64_t n, T best) {
  int64_t i = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto pick = [&](hn::Vec<decltype(d)> m, int64_t at) HWY_ATTR {
      const auto v = hn::LoadU(d, x + at);
      return hn::IfThenElse(hn::Or(hn::Lt(m, v), hn::IsNaN(v)), v, m);
    };
    auto m0 = hn::Set(d, best), m1 = m0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      m0 = pick(m0, i);
      m1 = pick(m1, i + lanes);
    }
    HWY_ALIGN T of_lanes[2 * hn::MaxLanes(d)];
    hn::Store(m0, d, of_lanes);
    hn::Store(m1, d, of_lanes + lanes);
    for (int64_t k = 0; k < 2 * lanes; ++k) best = larger(best, of_lanes[k]);
  }
  for (; i < n; ++i) best = larger(best, x[i]);
  return best;
}

// ---- sum, mean and amax -------------------------------------------------------------------------

template <typename T>
struct Sum {
  using Accumulator = SumOf<T>;
  static constexpr Accumulator kStart = 0;
  static Accumulator take(Accumulator sum, T x) { return sum + static_cast<Accumulator>(x); }
  static Accumulator take_row(Accumulator sum, const T* x, int64_t n) {
    return sum + sum_of_row(x, n);
  }
  static Accumulator combine(Accumulator sum, Accumulator later) { return sum + later; }
};

template <typename T>
struct Largest {
  using Accumulator = T;
  static constexpr Accumulator kStart = std::numeric_limits<T>::has_infinity
                                            ? -std::numeric_limits<T>::infinity()
                                            : std::numeric_limits<T>::lowest();
  static Accumulator take(Accumulator best, T x) { return larger(best, x); }
  static Accumulator take_row(Accumulator best, const T* x, int64_t n) {
    return largest_of_row(x, n, best);
  }
  static Accumulator combine(Accumulator best, Accumulator later) { return larger(best, later); }
};

template <class Op>
void start(void* accumulators, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  std::fill_n(a, n, Op::kStart);
}

template <class Op, typename T>
void along(void* accumulator, const std::byte* x, int64_t stride, int64_t n) {
  auto& a = *static_cast<typename Op::Accumulator*>(accumulator);
  if (stride == sizeof(T)) {
    a = Op::take_row(a, reinterpret_cast<const T*>(x), n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) a = Op::take(a, *reinterpret_cast<const T*>(x + i * stride));
}

template <class Op, typename T>
void across(void* accumulators, const std::byte* x, int64_t stride, int64_t n) {
  auto* const HWY_RESTRICT a = static_cast<typename Op::Accumulator*>(accumulators);
  const T* const HWY_RESTRICT dense = reinterpret_cast<const T*>(x);
  if (stride == sizeof(T)) {
    for (int64_t i = 0; i < n; ++i) a[i] = Op::take(a[i], dense[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      a[i] = Op::take(a[i], *reinterpret_cast<const T*>(x + i * stride));
    }
  }
}

template <class Op>
void combine(void* accumulators, const void* later, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  const auto* const b = static_cast<const typename Op::Accumulator*>(later);
  for (int64_t i = 0; i < n; ++i) a[i] = Op::combine(a[i], b[i]);
}

template <class Op, typename Y, bool kIsMean>
void finish(const void* accumulators, std::byte* y, int64_t stride, int64_t n, int64_t count) {
  using A = typename Op::Accumulator;
  // Sums of integers were kept without a sign.
  using Signed = std::conditional_t<std::is_same_v<A, uint64_t>, int64_t, A>;
  const auto* const a = static_cast<const A*>(accumulators);
  for (int64_t i = 0; i < n; ++i) {
    auto value = static_cast<Signed>(a[i]);
    if constexpr (kIsMean) value /= static_cast<A>(count);
    *reinterpret_cast<Y*>(y + i * stride) = static_cast<Y>(value);
  }
}

template <class Op, typename T, typename Y, bool kIsMean = false>
Reducer reducer() {
  return {sizeof(typename Op::Accumulator),
          start<Op>,
          along<Op, T>,
          across<Op, T>,
          combine<Op>,
          finish<Op, Y, kIsMean>};
}

template <typename T>
Reducer sum_to(bp_dtype y) {
  switch (y) {
    case BP_F32:
      return reducer<Sum<T>, T, float>();
    case BP_F64:
      return reducer<Sum<T>, T, double>();
    case BP_I32:
      return reducer<Sum<T>, T, int32_t>();
    default:
      return reducer<Sum<T>, T, int64_t>();
  }
}

Reducer sum_reducer(bp_dtype x, bp_dtype y) {
  switch (x) {
    case BP_F32:
      return sum_to<float>(y);
    case BP_F64:
      return sum_to<double>(y);
    case BP_I32:
      return sum_to<int32_t>(y);
    case BP_I64:
      return sum_to<int64_t>(y);
    default:
      return sum_to<uint8_t>(y);
  }
}

// The reducer of `op` from dtype x to dtype y, which the claims limit to those below.
Reducer find_reducer(uint32_t op, bp_dtype x, bp_dtype y) {
  if (op == BP_OP_SUM) return sum_reducer(x, y);
  if (op == BP_OP_MEAN) {
    return x == BP_F32 ? reducer<Sum<float>, float, float, true>()
                       : reducer<Sum<double>, double, double, true>();
  }
  switch (x) {
    case BP_F32:
      return reducer<Largest<float>, float, float>();
    case BP_F64:
      return reducer<Largest<double>, double, double>();
    case BP_I32:
      return reducer<Largest<int32_t>, int32_t, int32_t>();
    default:
      return reducer<Largest<int64_t>, int64_t, int64_t>();
  }
}

// ---- argmax -------------------------------------------------------------------------------------

// The first index of the largest of n elements: a row that is dense is read once for its largest
// element, and again as far as the first that equals it.
template <typename T>
int64_t argmax_of_row(const std::byte* x, int64_t stride, int64_t n) {
  const auto at = [&](int64_t i) { return *reinterpret_cast<const T*>(x + i * stride); };
  T best = at(0);
  if (stride == sizeof(T)) {
    best = largest_of_row(reinterpret_cast<const T*>(x), n, best);
  } else {
    for (int64_t i = 1; i < n; ++i) best = larger(best, at(i));
  }
  int64_t i = 0;
  while (at(i) != best && at(i) == at(i)) ++i;
  return i;
}

// The same for `width` outputs at once: what is largest so far, and where it is.
template <typename T>
void argmax_across(const ReducePlan& plan, const std::byte* x, int64_t width, int64_t* index) {
  const InnerStrides strides = inner_strides(plan);
  std::array<T, kTileWidth> best;
  const auto take = [&](int64_t r, int64_t c, T value) HWY_ATTR {
    T& so_far = best[static_cast<size_t>(c)];
    const bool is_larger = (so_far < value) | ((value != value) & (so_far == so_far));
    so_far = is_larger ? value : so_far;
    index[c] = is_larger ? r : index[c];
  };
  const auto at = [&](int64_t c)
                      HWY_ATTR { return *reinterpret_cast<const T*>(x + c * strides.kept_x); };
  for (int64_t c = 0; c < width; ++c) best[static_cast<size_t>(c)] = at(c);
  std::fill_n(index, width, int64_t{0});
  for (int64_t r = 1; r < plan.reduced.count; ++r) {
    x += strides.reduced_x;
    if (strides.kept_x == sizeof(T)) {
      const T* const row = reinterpret_cast<const T*>(x);
      for (int64_t c = 0; c < width; ++c) take(r, c, row[c]);
    } else {
      for (int64_t c = 0; c < width; ++c) take(r, c, at(c));
    }
  }
}

template <typename T>
void argmax_tile(const ReducePlan& plan, int64_t output, int64_t n) {
  std::array<int64_t, kTileWidth> index;
  const std::byte* const x = x_address(plan, output);
  if (plan.is_across) {
    argmax_across<T>(plan, x, n, index.data());
  } else {
    index[0] = argmax_of_row<T>(x, inner_strides(plan).reduced_x, plan.reduced.count);
  }
  std::byte* const y = y_address(plan, output);
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<int64_t*>(y + i * inner_strides(plan).kept_y) = index[static_cast<size_t>(i)];
  }
}

using ArgmaxTile = void(const ReducePlan& plan, int64_t output, int64_t n);

ArgmaxTile* find_argmax(bp_dtype dtype) {
  switch (dtype) {
    case BP_F32:
      return argmax_tile<float>;
    case BP_F64:
      return argmax_tile<double>;
    case BP_I32:
      return argmax_tile<int32_t>;
    default:
      return argmax_tile<int64_t>;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_reducer);
HWY_EXPORT(find_argmax);

template <typename Args>
ReducePlan plan_of(const Args& args) {
  return make_reduce_plan(*args.x, *args.y, axis_bits(args.axes_count, args.axes),
                          args.keepdims != 0);
}

template <typename Args>
uint64_t reduction_workspace(const Args& args, const Env&) {
  return parts_size_bytes(plan_of(args));
}

template <typename Args, uint32_t kOp>
bp_status reduction_launch(const Args& args, Launch& launch) {
  ReducePlan plan = plan_of(args);
  plan.parts = launch.workspace();
  const Reducer reducer = HWY_DYNAMIC_DISPATCH(find_reducer)(kOp, args.x->dtype, args.y->dtype);
  return launch.submit(
      [plan, reducer, threads = launch.thread_count()] { run_reduce(plan, reducer, threads); });
}

bp_status argmax_launch(const bp_argmax_args& args, Launch& launch) {
  ReducePlan plan = make_reduce_plan(*args.x, *args.y, 1u << args.axis, args.keepdims != 0);
  plan.part_count = 1;
  auto* const tile = HWY_DYNAMIC_DISPATCH(find_argmax)(args.x->dtype);
  return launch.submit([plan, tile, threads = launch.thread_count()] {
    if (plan.reduced.count == 0) return;  // Then there is no output either.
    for_each_tile(plan, threads,
                  [&](int64_t, int64_t output, int64_t n) { tile(plan, output, n); });
  });
}

constexpr bp_dtype kFloating[] = {BP_F32, BP_F64};
constexpr bp_dtype kArithmetic[] = {BP_F32, BP_F64, BP_I32, BP_I64};
constexpr bp_dtype kSumRows[] = {
    BP_F32, BP_F32, BP_F32,  BP_F64, BP_F32,  BP_I32, BP_F32,  BP_I64, BP_F64,  BP_F32,
    BP_F64, BP_F64, BP_F64,  BP_I32, BP_F64,  BP_I64, BP_I32,  BP_F32, BP_I32,  BP_F64,
    BP_I32, BP_I32, BP_I32,  BP_I64, BP_I64,  BP_F32, BP_I64,  BP_F64, BP_I64,  BP_I32,
    BP_I64, BP_I64, BP_BOOL, BP_F32, BP_BOOL, BP_F64, BP_BOOL, BP_I32, BP_BOOL, BP_I64};

constexpr bp_kernel reduction_row(const char* name, uint32_t op, const bp_dtype* dtype_rows,
                                  uint32_t dtype_row_count, uint32_t dtype_count) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC,
      .dtype_rows = dtype_rows,
      .dtype_row_count = dtype_row_count,
      .dtype_count = dtype_count,
      .layouts = BP_LAYOUT_ANY,
  };
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel reduction_kernel(const bp_kernel& row) {
  return make_kernel<Args, reduction_launch<Args, kOp>, nullptr, reduction_workspace<Args>>(row);
}

}  // namespace

constinit const bp_kernel kSum = reduction_kernel<bp_sum_args, BP_OP_SUM>(
    reduction_row("sum", BP_OP_SUM, kSumRows, std::size(kSumRows) / 2, 2));
constinit const bp_kernel kMean = reduction_kernel<bp_mean_args, BP_OP_MEAN>(
    reduction_row("mean", BP_OP_MEAN, kFloating, std::size(kFloating), 1));
constinit const bp_kernel kAmax = reduction_kernel<bp_amax_args, BP_OP_AMAX>(
    reduction_row("amax", BP_OP_AMAX, kArithmetic, std::size(kArithmetic), 1));
constinit const bp_kernel kArgmax = make_kernel<bp_argmax_args, argmax_launch>(
    reduction_row("argmax", BP_OP_ARGMAX, kArithmetic, std::size(kArithmetic), 1));

}  // namespace bp::kernels
#endif  // HWY_ONCE
