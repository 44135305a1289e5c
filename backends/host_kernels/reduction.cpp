// sum, mean and amax over any axes, for tensors of every layout (reduce.hpp).
//
// Sums of floats are kept in f64, so that the error does not grow with the number of elements.
// Where the result is no f64, eight vectors are added in f32 first, as a tree: widening each of
// them took 1.6 times as long out of a last-level cache. Where that tree overflows, the f64 sum is
// taken instead. Integers are added in 64 bits and wrap. A sum over no axes is x itself: -0 stays.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/reduction.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <limits>
#include <type_traits>

#include "backends/host_kernels/larger-inl.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Each op takes elements one by one, a row into one accumulator, and a vector of elements of as
// many columns into a vector of accumulators.
template <typename T, bool kIsGrouped = false>
struct Sum {
  using Accumulator = SumOf<T>;
  static constexpr Accumulator kStart = 0;
  static constexpr bool kHasVectors = !std::is_integral_v<T>;
  static constexpr bool kHasGroups = kIsGrouped;
  static Accumulator take(Accumulator sum, T x) { return sum + static_cast<Accumulator>(widen(x)); }
  static Accumulator take_row(Accumulator sum, const T* x, int64_t n) {
    if constexpr (kIsGrouped) {
      return sum + sum_of_row_by_groups(x, n);
    } else {
      return sum + sum_of_row(x, n);
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> take_vector(D d, hn::Vec<D> sum, const T* x) {
    return hn::Add(sum, load_wide(d, x));
  }
  static Accumulator combine(Accumulator sum, Accumulator later) { return sum + later; }
};

template <typename T>
struct Largest {
  using Accumulator = Compute<T>;
  static constexpr Accumulator kStart = std::numeric_limits<Accumulator>::has_infinity
                                            ? -std::numeric_limits<Accumulator>::infinity()
                                            : std::numeric_limits<Accumulator>::lowest();
  static constexpr bool kHasVectors = true, kHasGroups = false;
  static Accumulator take(Accumulator best, T x) { return larger(best, widen(x)); }
  static Accumulator take_row(Accumulator best, const T* x, int64_t n) {
    return largest_of_row(x, n, best);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> take_vector(D d, hn::Vec<D> best, const T* x) {
    const auto v = load_lanes(d, x);
    return hn::IfThenElse(is_larger(d, best, v), v, best);
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

// kRows rows of dense columns: the accumulators are loaded and stored once for all of them.
template <class Op, typename T, int kRows>
void across_rows(typename Op::Accumulator* HWY_RESTRICT a, const std::byte* x, int64_t row_stride,
                 int64_t n) {
  const auto at = [&](int row) { return reinterpret_cast<const T*>(x + row * row_stride); };
  int64_t i = 0;
  if constexpr (Op::kHasGroups && kRows == kGroupSize) {
    i = take_group(a, at(0), row_stride / static_cast<int64_t>(sizeof(T)), n);
  }
  if constexpr (Op::kHasVectors) {
    const hn::ScalableTag<typename Op::Accumulator> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      auto v = hn::LoadU(d, a + i);
      for (int row = 0; row < kRows; ++row) v = Op::take_vector(d, v, at(row) + i);
      hn::StoreU(v, d, a + i);
    }
  }
  for (; i < n; ++i) {
    for (int row = 0; row < kRows; ++row) a[i] = Op::take(a[i], at(row)[i]);
  }
}

template <class Op, typename T>
void across(void* accumulators, const std::byte* x, int64_t row_stride, int64_t rows,
            int64_t stride, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  constexpr int kRows = kGroupSize;
  int64_t row = 0;
  if (stride == sizeof(T)) {
    for (; row + kRows <= rows; row += kRows) {
      across_rows<Op, T, kRows>(a, x + row * row_stride, row_stride, n);
    }
    for (; row < rows; ++row) across_rows<Op, T, 1>(a, x + row * row_stride, row_stride, n);
  }
  for (; row < rows; ++row) {
    const std::byte* const from = x + row * row_stride;
    for (int64_t i = 0; i < n; ++i) {
      a[i] = Op::take(a[i], *reinterpret_cast<const T*>(from + i * stride));
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
    if constexpr (kIsNarrow<Y>) {
      *reinterpret_cast<Y*>(y + i * stride) = narrow<Y>(round_to_odd(value));
    } else {
      *reinterpret_cast<Y*>(y + i * stride) = static_cast<Y>(value);
    }
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

// Whether sums of T are taken by groups: where neither T nor Y has the digits of f64.
template <typename T, typename Y>
constexpr bool kIsGrouped = (std::is_same_v<Compute<T>, float> &&
                             std::is_same_v<Compute<Y>, float>);

template <typename T>
Reducer sum_to(bp_dtype y) {
  return with_number(y, []<typename Y>(Y) { return reducer<Sum<T, kIsGrouped<T, Y>>, T, Y>(); });
}

Reducer sum_reducer(bp_dtype x, bp_dtype y) {
  if (x == BP_BOOL) return sum_to<uint8_t>(y);
  return with_number(x, [y]<typename T>(T) { return sum_to<T>(y); });
}

Reducer mean_reducer(bp_dtype x) {
  return with_float(x,
                    []<typename T>(T) { return reducer<Sum<T, kIsGrouped<T, T>>, T, T, true>(); });
}

// The reducer of `op` from dtype x to dtype y, which the claims limit to those above.
Reducer find_reducer(uint32_t op, bp_dtype x, bp_dtype y) {
  if (op == BP_OP_SUM) return sum_reducer(x, y);
  if (op == BP_OP_MEAN) return mean_reducer(x);
  return with_number(x, []<typename T>(T) { return reducer<Largest<T>, T, T>(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_reducer);

template <typename Args>
ReducePlan plan_of(const Args& args) {
  return make_reduce_plan(*args.x, *args.y, axis_bits(args.axes_count, args.axes),
                          args.keepdims != 0);
}

template <typename Args>
uint64_t reduction_workspace(const Args& args, const Env&) {
  return parts_size_bytes(plan_of(args));
}

// -0 changes no element that is added to it; 0 would change -0. A sum of no elements must be 0.
void start_at_identity(void* accumulators, int64_t n) {
  std::fill_n(static_cast<double*>(accumulators), n, -0.0);
}

bool is_float(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F32 || dtype == BP_F64;
}

template <typename Args, uint32_t kOp>
bp_status reduction_launch(const Args& args, Launch& launch) {
  ReducePlan plan = plan_of(args);
  plan.parts = launch.workspace();
  Reducer reducer = HWY_DYNAMIC_DISPATCH(find_reducer)(kOp, args.x->dtype, args.y->dtype);
  const bool is_sum = kOp == BP_OP_SUM || kOp == BP_OP_MEAN;
  if (is_sum && is_float(args.x->dtype) && args.axes_count == 0) reducer.start = start_at_identity;
  return launch.submit(
      [plan, reducer, threads = launch.thread_count()] { run_reduce(plan, reducer, threads); });
}

constexpr bp_dtype kSummed[] = {BP_F16, BP_BF16, BP_F32, BP_F64, BP_I32, BP_I64, BP_BOOL};

// Each of kSummed to each of kNumberDtypes.
constexpr auto kSumRows = pairs_of(kSummed, kNumberDtypes);

template <typename Args, uint32_t kOp>
constexpr bp_kernel reduction_kernel(const char* name, DtypeRows dtypes) {
  return make_kernel<Args, reduction_launch<Args, kOp>, nullptr, reduction_workspace<Args>>(
      kernel_row(name, kOp, dtypes));
}

}  // namespace

constinit const bp_kernel kSum = reduction_kernel<bp_sum_args, BP_OP_SUM>("sum", {kSumRows, 2});
constinit const bp_kernel kMean = reduction_kernel<bp_mean_args, BP_OP_MEAN>("mean", kFloatDtypes);
constinit const bp_kernel kAmax = reduction_kernel<bp_amax_args, BP_OP_AMAX>("amax", kNumberDtypes);

}  // namespace bp::kernels
#endif  // HWY_ONCE
