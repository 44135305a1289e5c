// The reductions that have a formula in the operator specification, over any axes, for tensors of
// every layout (reduce.hpp). The map of elements, their combination and the last step are emitted
// from the specification (reductions-inl.hpp).
//
// Sums of floats are kept in f64, so that the error does not grow with the number of elements. If
// the result is not f64, eight vectors are added in f32 first, as a tree. To widen each vector took
// 1.6 times as long with data in a last-level cache. If the tree overflows, the f64 sum is used
// instead. Integers are added in 64 bits and wrap. Products of floats are kept in f64 as well, and
// products of integers in 64 bits. A formula whose map is a condition counts (counts-inl.hpp).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/reduction.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "backends/host_kernels/counts-inl.hpp"
#include "backends/host_kernels/extreme-inl.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "backends/host_kernels/wide_products-inl.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"
#include "reductions-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The map of a formula. Either all elements have one shift, or each column has its own.
template <class Formula, typename C>
struct RowMap {
  C shift;
  explicit RowMap(const void* at) : shift(Formula::kHasShift ? *static_cast<const C*>(at) : C{0}) {}
  RowMap at(int64_t) const { return *this; }
  template <class D, class V>
  HWY_INLINE V operator()(D d, V v) const {
    return Formula::map(d, v, hn::Set(d, shift));
  }
};

template <class Formula, typename C>
struct ColumnMap {
  const C* shifts;
  explicit ColumnMap(const void* from) : shifts(static_cast<const C*>(from)) {}
  ColumnMap at(int64_t i) const { return ColumnMap(Formula::kHasShift ? shifts + i : shifts); }
  template <class D, class V>
  HWY_INLINE V operator()(D d, V v) const {
    if constexpr (Formula::kHasShift) {
      return Formula::map(d, v, hn::LoadU(d, shifts));
    } else {
      return Formula::map(d, v, hn::Zero(d));
    }
  }
};

template <class Formula, template <class, typename> class Map, typename C>
auto map_of(const void* shifts) {
  if constexpr (Formula::kHasMap) {
    return Map<Formula, C>(shifts);
  } else {
    return Itself();
  }
}

// The combinations of mapped elements. Each has functions for single elements, for a row into one
// accumulator, and for a vector of elements of different columns into a vector of accumulators.
template <typename T, bool kIsGrouped = false>
struct Sum {
  using Accumulator = SumOf<T>;
  static constexpr Accumulator kStart = 0;
  static constexpr bool kHasVectors = !std::is_integral_v<T>;
  static constexpr bool kHasGroups = kIsGrouped;
  static Accumulator take(Accumulator sum, Compute<T> x) {
    return sum + static_cast<Accumulator>(x);
  }
  template <class Map>
  static Accumulator take_row(Accumulator sum, const T* x, int64_t n, const Map& map) {
    if constexpr (kIsGrouped) {
      return sum + sum_of_row_by_groups(x, n, map);
    } else {
      return sum + sum_of_row(x, n, map);
    }
  }
  template <class D, class Map>
  static HWY_INLINE hn::Vec<D> take_vector(D d, hn::Vec<D> sum, const T* x, const Map& map) {
    return hn::Add(sum, load_wide(d, x, map));
  }
  static Accumulator combine(Accumulator sum, Accumulator later) { return sum + later; }
};

template <typename T>
struct Product {
  using Accumulator = SumOf<T>;
  static constexpr Accumulator kStart = 1;
  static constexpr bool kHasVectors = !std::is_integral_v<T>, kHasGroups = false;
  static Accumulator take(Accumulator product, Compute<T> x) {
    return product * static_cast<Accumulator>(x);
  }
  template <class Map>
  static Accumulator take_row(Accumulator product, const T* x, int64_t n, const Map& map) {
    return product * product_of_row(x, n, map);
  }
  template <class D, class Map>
  static HWY_INLINE hn::Vec<D> take_vector(D d, hn::Vec<D> product, const T* x, const Map& map) {
    return hn::Mul(product, load_wide(d, x, map));
  }
  static Accumulator combine(Accumulator product, Accumulator later) { return product * later; }
};

// Returns the result of no elements, which is the least extreme value.
template <Extreme kWanted, typename C>
constexpr C least_extreme() {
  using Limits = std::numeric_limits<C>;
  const bool is_lowest = kWanted == Extreme::kLargest;
  if constexpr (Limits::has_infinity) {
    return is_lowest ? -Limits::infinity() : Limits::infinity();
  } else {
    return is_lowest ? Limits::lowest() : Limits::max();
  }
}

template <typename T, Extreme kWanted = Extreme::kLargest>
struct Best {
  using Accumulator = Compute<T>;
  static constexpr Accumulator kStart = least_extreme<kWanted, Accumulator>();
  static constexpr bool kHasVectors = true, kHasGroups = false;
  static Accumulator take(Accumulator best, Compute<T> x) { return better<kWanted>(best, x); }
  template <class Map>
  static Accumulator take_row(Accumulator best, const T* x, int64_t n, const Map& map) {
    return best_of_row<kWanted>(x, n, best, map);
  }
  template <class D, class Map>
  static HWY_INLINE hn::Vec<D> take_vector(D d, hn::Vec<D> best, const T* x, const Map& map) {
    const auto v = map(d, load_lanes(d, x));
    return hn::IfThenElse(is_better<kWanted>(d, best, v), v, best);
  }
  static Accumulator combine(Accumulator best, Accumulator later) {
    return better<kWanted>(best, later);
  }
};

template <class Op>
void start(void* accumulators, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  std::fill_n(a, n, Op::kStart);
}

// Returns the value to which a single element is added. It is -0, which changes no element; 0 would
// change -0. A sum of no elements begins with 0.
template <class Op>
void start_of_one(void* accumulators, int64_t n) {
  using A = typename Op::Accumulator;
  std::fill_n(static_cast<A*>(accumulators), n,
              std::is_floating_point_v<A> ? -Op::kStart : Op::kStart);
}

template <class Op, class Formula, typename T>
void along(void* accumulator, const void* shift, const std::byte* x, int64_t stride, int64_t n) {
  auto& a = *static_cast<typename Op::Accumulator*>(accumulator);
  const auto map = map_of<Formula, RowMap, Compute<T>>(shift);
  if (stride == sizeof(T)) {
    a = Op::take_row(a, reinterpret_cast<const T*>(x), n, map);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    a = Op::take(a, map_one(map, widen(*reinterpret_cast<const T*>(x + i * stride))));
  }
}

// Adds kRows rows of dense columns. It loads and stores the accumulators once for all rows.
template <class Op, typename T, int kRows, class Map>
void across_rows(typename Op::Accumulator* HWY_RESTRICT a, const std::byte* x, int64_t row_stride,
                 int64_t n, const Map& map) {
  const auto at = [&](int row) { return reinterpret_cast<const T*>(x + row * row_stride); };
  int64_t i = 0;
  if constexpr (Op::kHasGroups && kRows == kGroupSize) {
    i = take_group(a, at(0), row_stride / static_cast<int64_t>(sizeof(T)), n, map);
  }
  if constexpr (Op::kHasVectors) {
    const hn::ScalableTag<typename Op::Accumulator> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      auto v = hn::LoadU(d, a + i);
      const auto columns = map.at(i);
      for (int row = 0; row < kRows; ++row) v = Op::take_vector(d, v, at(row) + i, columns);
      hn::StoreU(v, d, a + i);
    }
  }
  for (; i < n; ++i) {
    const auto column = map.at(i);
    for (int row = 0; row < kRows; ++row) {
      a[i] = Op::take(a[i], map_one(column, widen(at(row)[i])));
    }
  }
}

template <class Op, class Formula, typename T>
void across(void* accumulators, const void* shifts, const std::byte* x, int64_t row_stride,
            int64_t rows, int64_t stride, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  const auto map = map_of<Formula, ColumnMap, Compute<T>>(shifts);
  constexpr int kRows = kGroupSize;
  int64_t row = 0;
  if (stride == sizeof(T)) {
    for (; row + kRows <= rows; row += kRows) {
      across_rows<Op, T, kRows>(a, x + row * row_stride, row_stride, n, map);
    }
    for (; row < rows; ++row) across_rows<Op, T, 1>(a, x + row * row_stride, row_stride, n, map);
  }
  for (; row < rows; ++row) {
    const std::byte* const from = x + row * row_stride;
    for (int64_t i = 0; i < n; ++i) {
      const auto element = widen(*reinterpret_cast<const T*>(from + i * stride));
      a[i] = Op::take(a[i], map_one(map.at(i), element));
    }
  }
}

template <class Op>
void combine(void* accumulators, const void* later, int64_t n) {
  auto* const a = static_cast<typename Op::Accumulator*>(accumulators);
  const auto* const b = static_cast<const typename Op::Accumulator*>(later);
  for (int64_t i = 0; i < n; ++i) a[i] = Op::combine(a[i], b[i]);
}

// Returns the final result of an accumulator.
template <class Formula, typename A>
A finished(A total, A count, A shift) {
  if constexpr (Formula::kHasFinish) {
    const hn::CappedTag<A, 1> d;
    return hn::GetLane(Formula::finish(d, hn::Set(d, total), hn::Set(d, count), hn::Set(d, shift)));
  } else {
    return total;
  }
}

template <class Op, class Formula, typename T, typename Y>
void finish(const void* accumulators, const void* shifts, std::byte* y, int64_t stride, int64_t n,
            int64_t count) {
  using A = typename Op::Accumulator;
  // Sums of integers are kept as unsigned numbers.
  using Signed = std::conditional_t<std::is_same_v<A, uint64_t>, int64_t, A>;
  const auto* const a = static_cast<const A*>(accumulators);
  for (int64_t i = 0; i < n; ++i) {
    Signed shift = 0;
    if constexpr (Formula::kHasShift) shift = static_cast<const Compute<T>*>(shifts)[i];
    const auto value =
        finished<Formula>(static_cast<Signed>(a[i]), static_cast<Signed>(count), shift);
    store_wide<Y>(value, y + i * stride);
  }
}

// Returns the shift, which is the largest element, or 0 if that is infinite.
template <typename C>
void finish_shifts(const void* accumulators, const void*, std::byte* y, int64_t stride, int64_t n,
                   int64_t) {
  const auto* const largest = static_cast<const C*>(accumulators);
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<C*>(y + i * stride) = std::isinf(largest[i]) ? C{0} : largest[i];
  }
}

// The formula that finds the largest element.
struct LargestFormula {
  static constexpr bool kHasMap = false;
};

template <typename T>
const Reducer* shift_reducer() {
  using Op = Best<T>;
  static constexpr Reducer kReducer{sizeof(typename Op::Accumulator),
                                    start<Op>,
                                    start<Op>,
                                    along<Op, LargestFormula, T>,
                                    across<Op, LargestFormula, T>,
                                    combine<Op>,
                                    finish_shifts<Compute<T>>};
  return &kReducer;
}

// Whether sums of T are added in groups first. They are if neither T nor Y has the digits of f64.
template <typename T, typename Y>
constexpr bool kIsGrouped = (std::is_same_v<Compute<T>, float> &&
                             std::is_same_v<Compute<Y>, float>);

template <class Formula, typename T, typename Y>
using CombinationOf = std::conditional_t<
    Formula::kAdds, Sum<T, kIsGrouped<T, Y>>,
    std::conditional_t<Formula::kMultiplies, Product<T>,
                       Best<T, Formula::kIsSmallest ? Extreme::kSmallest : Extreme::kLargest>>>;

template <class Formula, typename T, typename Y>
Reducer reducer() {
  using Op = CombinationOf<Formula, T, Y>;
  Reducer made{sizeof(typename Op::Accumulator),
               start<Op>,
               start<Op>,
               along<Op, Formula, T>,
               across<Op, Formula, T>,
               combine<Op>,
               finish<Op, Formula, T, Y>};
  if (Formula::kAdds && Formula::kCopiesOne) made.start_of_one = start_of_one<Op>;
  if (Formula::kIsLong) made.grain = kMathGrain;
  if constexpr (Formula::kHasShift) {
    made.shift = shift_reducer<T>();
    made.shift_size_bytes = sizeof(Compute<T>);
  }
  return made;
}

// Returns the reducer of a formula whose map is a condition. It counts.
template <class Formula, typename T>
Reducer counter() {
  return {sizeof(uint64_t),         start<Count>,   start<Count>,          count_along<Formula, T>,
          count_across<Formula, T>, combine<Count>, finish_counts<Formula>};
}

// Finds reducers for the rows of dtypes of a kernel: floats or numbers with y of the same dtype,
// all dtypes for a formula that counts, or pairs of dtypes.
template <class Formula>
Reducer find_in(decltype((kFloatDtypes)), bp_dtype x, bp_dtype) {
  return with_float(x, []<typename T>(T) { return reducer<Formula, T, T>(); });
}
template <class Formula>
Reducer find_in(decltype((kNumberDtypes)), bp_dtype x, bp_dtype) {
  return with_number(x, []<typename T>(T) { return reducer<Formula, T, T>(); });
}
template <class Formula>
Reducer find_in(decltype((kAnyDtypes)), bp_dtype x, bp_dtype) {
  return with_any(x, []<typename T>(T) { return counter<Formula, T>(); });
}
template <class Formula>
Reducer find_in(const DtypeRows&, bp_dtype x, bp_dtype y) {
  return with_number(y, [x]<typename Y>(Y) {
    if (x == BP_BOOL) return reducer<Formula, uint8_t, Y>();
    return with_number(x, []<typename T>(T) { return reducer<Formula, T, Y>(); });
  });
}

// Returns the reducer of `op` from dtype x to dtype y. The claims allow only the dtypes above.
Reducer find_reducer(uint32_t op, bp_dtype x, bp_dtype y) {
#define BP_REDUCTION(name, Name, OP, dtypes) \
  if (op == OP) return find_in<Name##Formula>(dtypes, x, y);
#include "reductions.def"
  throw StatusError(BP_INTERNAL, "no reduction has the op " + std::to_string(op));
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

template <typename Args, uint32_t kOp>
uint64_t reduction_workspace(const Args& args, const Env&) {
  ReducePlan plan = plan_of(args);
  const Reducer reducer = HWY_DYNAMIC_DISPATCH(find_reducer)(kOp, args.x->dtype, args.y->dtype);
  return place_parts(plan, nullptr, reducer.shift != nullptr);
}

template <typename Args, uint32_t kOp>
bp_status reduction_launch(const Args& args, Launch& launch) {
  ReducePlan plan = plan_of(args);
  Reducer reducer = HWY_DYNAMIC_DISPATCH(find_reducer)(kOp, args.x->dtype, args.y->dtype);
  place_parts(plan, launch.workspace(), reducer.shift != nullptr);
  if (args.axes_count == 0) reducer.start = reducer.start_of_one;
  return launch.submit(
      [plan, reducer, threads = launch.thread_count()] { run_reduce(plan, reducer, threads); });
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel reduction_kernel(const char* name, DtypeRows dtypes) {
  return make_kernel<Args, reduction_launch<Args, kOp>, nullptr, reduction_workspace<Args, kOp>>(
      kernel_row(name, kOp, dtypes));
}

}  // namespace

#define BP_REDUCTION(name, Name, OP, dtypes) \
  constinit const bp_kernel k##Name = reduction_kernel<bp_##name##_args, OP>(#name, dtypes);
#include "reductions.def"

}  // namespace bp::kernels
#endif  // HWY_ONCE
