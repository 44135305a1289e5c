// argmax and argmin, for tensors of every layout (reduce.hpp). The result of a part is its most
// extreme element and the index of that element.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/argmax.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <array>
#include <cstring>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/extreme-inl.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/reduce.hpp"

#ifndef BACKPLANE_CPU_INDEX_FUNCTIONS
#define BACKPLANE_CPU_INDEX_FUNCTIONS
namespace bp::kernels {
namespace {

// The most extreme element of a part, and its index.
struct Candidate {
  int64_t index;
  uint64_t value;  // The bytes of an element in the computing type.
};

struct IndexFunctions {
  void (*part)(const ReducePlan& plan, int64_t part, int64_t output, int64_t n, Candidate* to);
  bool (*is_later)(const Candidate& earlier, const Candidate& later);
  bool gives_i64 = true;
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Returns whether an element is equal to `best`, or both are NaN.
template <typename T>
HWY_INLINE bool is_match(T x, T best) {
  return x == best || (x != x && best != best);
}

// Returns the index of the first of n dense elements that matches `best`. There must be one.
template <typename T>
int64_t find_in_row(const T* x, int64_t n, Compute<T> best) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, best);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = load_lanes(d, x + i);
    auto found = hn::Eq(v, wanted);
    if constexpr (std::is_floating_point_v<Compute<T>>) {
      if (best != best) found = hn::IsNaN(v);
    }
    const intptr_t first = hn::FindFirstTrue(d, found);
    if (first >= 0) return i + first;
  }
  while (i + 1 < n && !is_match(widen(x[i]), best)) ++i;
  return i;
}

// Returns whether `x` is beyond `best`, or one of both is NaN.
template <Extreme kWanted, typename T>
HWY_INLINE bool is_beyond(T best, T x) {
  return kWanted == Extreme::kLargest ? !(x <= best) : !(x >= best);
}

// Returns the first index of the most extreme of n dense elements. The elements are read from
// memory once: the search for the index reads a block that is still in the first-level cache.
template <Extreme kWanted, typename T>
int64_t index_of_dense(const T* x, int64_t n) {
  constexpr int64_t kBlock = 8192;
  Compute<T> best = widen(x[0]);
  int64_t index = 0;
  for (int64_t i = 0; i < n && best == best; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    const Compute<T> extreme = best_of_row<kWanted>(x + i, count, best);
    if (is_match(extreme, best)) continue;  // No element is beyond the earlier ones.
    best = extreme;
    index = i + find_in_row(x + i, count, best);
  }
  return index;
}

template <Extreme kWanted, typename T>
int64_t index_of_row(const std::byte* x, int64_t stride, int64_t n) {
  if (stride == sizeof(T)) return index_of_dense<kWanted>(reinterpret_cast<const T*>(x), n);
  const auto at = [&](int64_t i) { return widen(*reinterpret_cast<const T*>(x + i * stride)); };
  Compute<T> best = at(0);
  int64_t index = 0;
  for (int64_t i = 1; i < n && best == best; ++i) {
    const Compute<T> value = at(i);
    if (is_beyond<kWanted>(best, value)) index = i, best = value;
  }
  return index;
}

// The most extreme elements so far of neighbouring outputs, and their rows. Rows are counted in 32
// bits if elements have 32 bits.
template <Extreme kWanted, typename T>
struct Best {
  using Value = Compute<T>;
  using Index = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;

  // Adds kRows rows, `row_stride` bytes apart. `row` is the number of the first one.
  template <int kRows>
  void take(const std::byte* x, int64_t row_stride, int64_t row, int64_t n) {
    const ComputeTag<T> d;
    const hn::RebindToSigned<decltype(d)> index_d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto at = [&](int r) { return reinterpret_cast<const T*>(x + r * row_stride); };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      auto best = hn::LoadU(d, values + i);
      auto index = hn::LoadU(index_d, indices + i);
      for (int r = 0; r < kRows; ++r) {
        const auto v = load_lanes(d, at(r) + i);
        auto is_taken = is_better<kWanted>(d, best, v);
        if constexpr (std::is_floating_point_v<Value>) {
          is_taken = hn::And(is_taken, hn::Eq(best, best));  // The first NaN stays.
        }
        const auto here = hn::Set(index_d, static_cast<Index>(row + r));
        best = hn::IfThenElse(is_taken, v, best);
        index = hn::IfThenElse(hn::RebindMask(index_d, is_taken), here, index);
      }
      hn::StoreU(best, d, values + i);
      hn::StoreU(index, index_d, indices + i);
    }
    for (; i < n; ++i) {
      for (int r = 0; r < kRows; ++r) take_one(i, row + r, widen(at(r)[i]));
    }
  }

  void take_one(int64_t i, int64_t row, Value value) {
    if (is_beyond<kWanted>(values[i], value) && values[i] == values[i]) {
      values[i] = value;
      indices[i] = static_cast<Index>(row);
    }
  }

  // The arrays must not lie a multiple of 4 KiB apart, because loads would then wait for stores
  // that they seem to overlap.
  alignas(64) Value values[kTileWidth + 32];
  alignas(64) Index indices[kTileWidth];
};

// Finds the candidates of n outputs at once, over `rows` rows.
template <Extreme kWanted, typename T>
void find_across(const std::byte* x, const InnerStrides& strides, int64_t rows, int64_t n,
                 Candidate* to) {
  Best<kWanted, T> best;
  const auto at = [&](int64_t row, int64_t i) {
    return widen(*reinterpret_cast<const T*>(x + row * strides.reduced_x + i * strides.kept_x));
  };
  for (int64_t i = 0; i < n; ++i) best.values[i] = at(0, i);
  std::fill_n(best.indices, n, 0);
  constexpr int kRows = 8;
  int64_t row = 1;
  if (strides.kept_x == sizeof(T)) {
    const auto from = [&](int64_t first) { return x + first * strides.reduced_x; };
    for (; row + kRows <= rows; row += kRows) {
      best.template take<kRows>(from(row), strides.reduced_x, row, n);
    }
    for (; row < rows; ++row) best.template take<1>(from(row), strides.reduced_x, row, n);
  }
  for (; row < rows; ++row) {
    for (int64_t i = 0; i < n; ++i) best.take_one(i, row, at(row, i));
  }
  for (int64_t i = 0; i < n; ++i) to[i].index = best.indices[i];
}

// Finds the candidates of n outputs among the reduced elements of one part.
template <Extreme kWanted, typename T>
void find_in_part(const ReducePlan& plan, int64_t part, int64_t output, int64_t n, Candidate* to) {
  const auto [begin, end] = part_range(plan, part);
  const InnerStrides strides = inner_strides(plan);
  const std::byte* const origin = x_address(plan, output);
  const std::byte* const x = origin + begin * strides.reduced_x;
  if (plan.is_across) {
    find_across<kWanted, T>(x, strides, end - begin, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      to[i].index =
          index_of_row<kWanted, T>(x + i * strides.kept_x, strides.reduced_x, end - begin);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    to[i].index += begin;
    if (plan.part_count == 1) continue;  // The value is not compared.
    const std::byte* const at = origin + to[i].index * strides.reduced_x + i * strides.kept_x;
    const Compute<T> value = widen(*reinterpret_cast<const T*>(at));
    std::memcpy(&to[i].value, &value, sizeof(value));
  }
}

// Returns whether the value of `later` is the more extreme one.
template <Extreme kWanted, typename T>
bool is_later(const Candidate& earlier, const Candidate& later) {
  Compute<T> a, b;
  std::memcpy(&a, &earlier.value, sizeof(a));
  std::memcpy(&b, &later.value, sizeof(b));
  return a == a && is_beyond<kWanted>(a, b);
}

template <Extreme kWanted>
IndexFunctions functions_of(bp_dtype dtype) {
  return with_number(dtype, []<typename T>(T) {
    return IndexFunctions{find_in_part<kWanted, T>, is_later<kWanted, T>, true};
  });
}

IndexFunctions find_functions(bool wants_largest, bp_dtype dtype) {
  return wants_largest ? functions_of<Extreme::kLargest>(dtype)
                       : functions_of<Extreme::kSmallest>(dtype);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_functions);

// The most rows that Best counts in 32 bits.
constexpr int64_t kMostRows = int64_t{1} << 30;

template <typename Args>
ReducePlan plan_of(const Args& args) {
  ReducePlan plan = make_reduce_plan(*args.x, *args.y, 1u << args.axis, args.keepdims != 0);
  plan.part_count = std::max(plan.part_count, (plan.reduced.count + kMostRows - 1) / kMostRows);
  plan.part_count =
      std::clamp<int64_t>(plan.part_count, 1, std::max<int64_t>(1, plan.reduced.count));
  return plan;
}

template <typename Args>
uint64_t index_workspace(const Args& args, const Env&) {
  const ReducePlan plan = plan_of(args);
  if (plan.part_count == 1) return 0;
  return static_cast<uint64_t>(plan.part_count * plan.kept.count) * sizeof(Candidate);
}

void combine_parts(const ReducePlan& plan, const IndexFunctions& functions) {
  const auto* const parts = reinterpret_cast<const Candidate*>(plan.parts);
  for (int64_t output = 0; output < plan.kept.count; ++output) {
    const Candidate* best = parts + output;
    for (int64_t part = 1; part < plan.part_count; ++part) {
      const Candidate& later = parts[part * plan.kept.count + output];
      if (functions.is_later(*best, later)) best = &later;
    }
    store_index(y_address(plan, output), functions.gives_i64, best->index);
  }
}

void run_search(const ReducePlan& plan, const IndexFunctions& functions, int threads) {
  if (plan.reduced.count == 0) return;  // There is no output then.
  auto* const parts = reinterpret_cast<Candidate*>(plan.parts);
  for_each_tile(plan, threads, kGrain, [&](int64_t part, int64_t output, int64_t n) {
    if (plan.part_count > 1) {
      functions.part(plan, part, output, n, parts + part * plan.kept.count + output);
      return;
    }
    std::array<Candidate, kTileWidth> best;
    functions.part(plan, part, output, n, best.data());
    std::byte* const y = y_address(plan, output);
    for (int64_t i = 0; i < n; ++i) {
      store_index(y + i * inner_strides(plan).kept_y, functions.gives_i64,
                  best[static_cast<size_t>(i)].index);
    }
  });
  if (plan.part_count > 1) combine_parts(plan, functions);
}

template <typename Args, bool kWantsLargest>
bp_status index_launch(const Args& args, Launch& launch) {
  ReducePlan plan = plan_of(args);
  plan.parts = launch.workspace();
  IndexFunctions functions = HWY_DYNAMIC_DISPATCH(find_functions)(kWantsLargest, args.x->dtype);
  functions.gives_i64 = args.y->dtype == BP_I64;
  return launch.submit(
      [plan, functions, threads = launch.thread_count()] { run_search(plan, functions, threads); });
}

template <typename Args>
bp_reason index_supports(const Args& args) {
  return index_reason(args.y, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel index_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, index_launch<Args, kWantsLargest>, index_supports<Args>,
                     index_workspace<Args>>(kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

extern constinit const bp_kernel kArgmax =
    index_kernel<bp_argmax_args, true>("argmax", BP_OP_ARGMAX);
extern constinit const bp_kernel kArgmin =
    index_kernel<bp_argmin_args, false>("argmin", BP_OP_ARGMIN);

}  // namespace bp::kernels
#endif  // HWY_ONCE
