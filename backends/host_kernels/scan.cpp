// cumsum and cumprod, for tensors of every layout (reduce.hpp, where the axis of the scan is the
// reduced one). Totals of floats are kept in f64, and totals of integers in 64 bits, which wrap.
//
//   along    one line after the other: a block of it is widened, scanned in a buffer, and narrowed
//   across   neighbouring lines side by side: the totals of all lines take one step at a time
//
// A long line has parts. A result is the total of the parts before its own, combined with the total
// inside its part. If there are fewer tiles than threads, threads share the parts of a line: they
// find the totals of as many parts as keep them busy, and then scan these parts, which are still in
// their caches. The order of operations depends on the shape alone, so equal input gives equal bits
// for any number of threads and on every target.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scan.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "backends/host_kernels/rounding-inl.hpp"
#include "backends/host_kernels/scan_groups-inl.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"
#include "hwy/cache_control.h"

#ifndef BACKPLANE_CPU_SCAN_FUNCTIONS
#define BACKPLANE_CPU_SCAN_FUNCTIONS
namespace bp::kernels {
namespace {

// Elements of n neighbouring lines that are scanned. Strides are in bytes.
struct ScanTile {
  const std::byte* x;
  std::byte* y;  // NULL if only the totals are wanted.
  int64_t x_step, y_step, steps;
  int64_t x_line, y_line, n;
  const void* before = nullptr;  // The totals of n lines before the tile.
};

// How one op scans one pair of dtypes. A total has 8 bytes.
struct Scanner {
  // Widens n elements, `stride` bytes apart, and narrows them.
  void (*load)(const std::byte* x, int64_t stride, int64_t n, void* to);
  void (*store)(const void* from, std::byte* y, int64_t stride, int64_t n);
  // Sets n totals to the total of no elements.
  void (*start)(void* totals, int64_t n);
  // Combines n totals with those of the elements behind.
  void (*add)(void* totals, const void* behind, int64_t n);
  // Scan a tile, and set n totals to those of its own elements.
  void (*along)(const Scanner& scanner, const ScanTile& tile, void* totals);
  void (*across)(const Scanner& scanner, const ScanTile& tile, void* totals);
  bool is_exclusive = false;
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct Addition {
  static constexpr int kStart = 0;
  static constexpr bool kTakesIntegers = true;
  template <typename A>
  static HWY_INLINE A combine(A total, A x) {
    return total + x;
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V total, V x) {
    return hn::Add(total, x);
  }
};

struct Multiplication {
  static constexpr int kStart = 1;
  static constexpr bool kTakesIntegers = false;  // Only AVX-512 multiplies integers of 64 bits.
  template <typename A>
  static HWY_INLINE A combine(A total, A x) {
    return total * x;
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V total, V x) {
    return hn::Mul(total, x);
  }
};

template <typename T>
void load_elements(const std::byte* x, int64_t stride, int64_t n, void* to) {
  auto* const wide = static_cast<SumOf<T>*>(to);
  int64_t i = 0;
  if (stride == sizeof(T)) {
    const T* const dense = reinterpret_cast<const T*>(x);
    if constexpr (!std::is_integral_v<T>) {
      const hn::ScalableTag<double> d;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      for (; i + lanes <= n; i += lanes) {
        hn::StoreU(load_wide(d, dense + i, Itself()), d, wide + i);
      }
    }
    for (; i < n; ++i) wide[i] = static_cast<SumOf<T>>(widen(dense[i]));
  }
  for (; i < n; ++i) {
    wide[i] = static_cast<SumOf<T>>(widen(*reinterpret_cast<const T*>(x + i * stride)));
  }
}

template <typename A, typename Y>
void store_elements(const void* from, std::byte* y, int64_t stride, int64_t n) {
  const auto* const wide = static_cast<const A*>(from);
  int64_t i = 0;
  if (stride == sizeof(Y)) {
    if constexpr (std::is_same_v<A, double> && std::is_same_v<Compute<Y>, float>) {
      i = store_rounded(wide, n, reinterpret_cast<Y*>(y));
    }
    for (; i < n; ++i) store_wide<Y>(wide[i], y + i * static_cast<int64_t>(sizeof(Y)));
  }
  for (; i < n; ++i) store_wide<Y>(wide[i], y + i * stride);
}

template <class Op, typename A>
void start(void* totals, int64_t n) {
  std::fill_n(static_cast<A*>(totals), n, static_cast<A>(Op::kStart));
}

template <class Op, typename A>
void add(void* totals, const void* behind, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    A& total = static_cast<A*>(totals)[i];
    total = Op::combine(total, static_cast<const A*>(behind)[i]);
  }
}

// Does what scan_groups() does for n elements.
template <class Op, typename A>
A scan_block(A* a, int64_t n, A before, A total) {
  const int64_t groups = n / kGroup;
  total = scan_groups<Op>(a, groups, before, total);
  for (int64_t i = groups * kGroup; i < n; ++i) {
    total = Op::combine(total, a[i]);
    a[i] = Op::combine(before, total);
  }
  return total;
}

template <class Op, typename A>
void scan_along(const Scanner& scanner, const ScanTile& tile, void* totals) {
  constexpr int64_t kBlock = 1024;
  // The total before the block stands in front of its elements, where exclusive results begin.
  alignas(64) std::array<A, kBlock + kGroup> block;
  A* const elements = block.data() + kGroup;
  const A* const results = elements - (scanner.is_exclusive ? 1 : 0);
  for (int64_t line = 0; line < tile.n; ++line) {
    const A before = static_cast<const A*>(tile.before)[line];
    A total = static_cast<A>(Op::kStart);
    const std::byte* const x = tile.x + line * tile.x_line;
    for (int64_t first = 0; first < tile.steps; first += kBlock) {
      const int64_t count = std::min(kBlock, tile.steps - first);
      elements[-1] = Op::combine(before, total);
      scanner.load(x + first * tile.x_step, tile.x_step, count, elements);
      total = scan_block<Op>(elements, count, before, total);
      if (tile.y == nullptr) continue;
      std::byte* const y = tile.y + line * tile.y_line + first * tile.y_step;
      scanner.store(results, y, tile.y_step, count);
    }
    static_cast<A*>(totals)[line] = total;
  }
}

// Prefetches the elements of n lines, if they lie side by side.
HWY_INLINE void prefetch_step(const std::byte* x, int64_t stride, int64_t n) {
  if (stride < 0 || stride > int64_t{sizeof(double)}) return;
  for (int64_t b = 0; b < n * stride; b += 64) hwy::Prefetch(x + b);
}

template <class Op, typename A>
void scan_across(const Scanner& scanner, const ScanTile& tile, void* totals) {
  constexpr int64_t kAhead = 2;  // The hardware does not see which steps follow.
  alignas(64) std::array<A, kTileWidth> row, result;
  auto* const total = static_cast<A*>(totals);
  const auto* const before = static_cast<const A*>(tile.before);
  scanner.start(totals, tile.n);
  for (int64_t step = 0; step < tile.steps; ++step) {
    const std::byte* const x = tile.x + step * tile.x_step;
    if (step + kAhead < tile.steps) prefetch_step(x + kAhead * tile.x_step, tile.x_line, tile.n);
    scanner.load(x, tile.x_line, tile.n, row.data());
    for (size_t i = 0; i < static_cast<size_t>(tile.n); ++i) {
      const A next = Op::combine(total[i], row[i]);
      result[i] = Op::combine(before[i], scanner.is_exclusive ? total[i] : next);
      total[i] = next;
    }
    if (tile.y == nullptr) continue;
    scanner.store(result.data(), tile.y + step * tile.y_step, tile.y_line, tile.n);
  }
}

template <class Op, typename T>
Scanner scanner_of(bp_dtype y) {
  using A = SumOf<T>;
  const auto store = with_number(y, []<typename Y>(Y) { return &store_elements<A, Y>; });
  return {load_elements<T>, store, start<Op, A>, add<Op, A>, scan_along<Op, A>, scan_across<Op, A>};
}

template <class Op>
Scanner find_by_x(bp_dtype x, bp_dtype y) {
  if (x == BP_BOOL) return scanner_of<Op, uint8_t>(y);
  return with_number(x, [y]<typename T>(T) { return scanner_of<Op, T>(y); });
}

// Returns the scanner of an op, which multiplies if `multiplies` is true, and else adds.
Scanner find_scanner(bool multiplies, bp_dtype x, bp_dtype y) {
  return multiplies ? find_by_x<Multiplication>(x, y) : find_by_x<Addition>(x, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_scanner);

// A plan whose lines are the kept axes. `x` and `y` begin with the first elements that are scanned.
struct ScanPlan {
  ReducePlan axes;
  int64_t x_step = 0, y_step = 0;  // Along the lines, in the order of the scan.
};

template <typename Args>
ScanPlan plan_of(const Args& args) {
  const auto axis = static_cast<size_t>(args.axis);
  ScanPlan plan{make_reduce_plan(*args.x, *args.y, 1u << axis, true)};
  plan.x_step = axis_stride(*args.x, axis) * dtype_size_bytes(args.x->dtype);
  plan.y_step = axis_stride(*args.y, axis) * dtype_size_bytes(args.y->dtype);
  const int64_t last = plan.axes.reduced.count - 1;
  if (args.is_reverse == 0 || last < 0) return plan;
  plan.axes.x += last * plan.x_step;
  plan.axes.y += last * plan.y_step;
  plan.x_step = -plan.x_step;
  plan.y_step = -plan.y_step;
  return plan;
}

template <typename Args>
uint64_t scan_workspace(const Args& args, const Env&) {
  ScanPlan plan = plan_of(args);
  return place_parts(plan.axes, nullptr, true);
}

// Returns the elements of a part of n lines.
ScanTile tile_of(const ScanPlan& plan, int64_t part, int64_t line, int64_t n, const void* before) {
  const ReducePlan& axes = plan.axes;
  const auto [begin, end] = part_range(axes, part);
  const InnerStrides strides = inner_strides(axes);
  return {.x = x_address(axes, line) + begin * plan.x_step,
          .y = y_address(axes, line) + begin * plan.y_step,
          .x_step = plan.x_step,
          .y_step = plan.y_step,
          .steps = end - begin,
          .x_line = strides.kept_x,
          .y_line = strides.kept_y,
          .n = n,
          .before = before};
}

using Totals = std::array<uint64_t, kTileWidth>;

// Scans all parts of a tile one after the other.
void scan_tiles(const ScanPlan& plan, const Scanner& scanner, int threads) {
  const auto scan = plan.axes.is_across ? scanner.across : scanner.along;
  ReducePlan whole = plan.axes;
  whole.part_count = 1;
  for_each_tile(whole, threads, kGrain, [&](int64_t, int64_t line, int64_t n) {
    alignas(64) Totals before, totals;
    scanner.start(before.data(), n);
    for (int64_t part = 0; part < plan.axes.part_count; ++part) {
      scan(scanner, tile_of(plan, part, line, n, before.data()), totals.data());
      scanner.add(before.data(), totals.data(), n);
    }
  });
}

// Lets threads share the parts of the tiles, some parts at a time.
void scan_shared_parts(const ScanPlan& plan, const Scanner& scanner, int threads) {
  const auto scan = plan.axes.is_across ? scanner.across : scanner.along;
  const int64_t lines = plan.axes.kept.count, tiles = tile_count(plan.axes);
  constexpr int64_t kPartsOfThread = 4;  // With fewer, threads wait for each other too often.
  const int64_t most = (kPartsOfThread * threads + tiles - 1) / tiles;
  const auto totals_of = [&](int64_t part, int64_t line) {
    return plan.axes.parts + (part * lines + line) * int64_t{sizeof(uint64_t)};
  };
  std::byte* const before = plan.axes.shifts;
  scanner.start(before, lines);
  for (int64_t first = 0, count = 0; first < plan.axes.part_count; first += count) {
    ReducePlan some = plan.axes;
    count = some.part_count = std::min(most, plan.axes.part_count - first);
    for_each_tile(some, threads, kGrain, [&](int64_t part, int64_t line, int64_t n) {
      alignas(64) Totals none;
      scanner.start(none.data(), n);
      ScanTile tile = tile_of(plan, first + part, line, n, none.data());
      tile.y = nullptr;
      scan(scanner, tile, totals_of(part, line));
    });
    for (int64_t part = 0; part < count; ++part) {
      std::byte* const totals = totals_of(part, 0);
      std::swap_ranges(before, before + lines * int64_t{sizeof(uint64_t)}, totals);
      scanner.add(before, totals, lines);
    }
    for_each_tile(some, threads, kGrain, [&](int64_t part, int64_t line, int64_t n) {
      alignas(64) Totals own;
      scan(scanner, tile_of(plan, first + part, line, n, totals_of(part, line)), own.data());
    });
  }
}

void run_scan(const ScanPlan& plan, const Scanner& scanner, int threads) {
  if (plan.axes.kept.count == 0 || plan.axes.reduced.count == 0) return;
  const bool shares_parts = plan.axes.part_count > 1 && tile_count(plan.axes) < threads;
  (shares_parts ? scan_shared_parts : scan_tiles)(plan, scanner, threads);
}

template <typename Args, bool kMultiplies>
bp_status scan_launch(const Args& args, Launch& launch) {
  ScanPlan plan = plan_of(args);
  place_parts(plan.axes, launch.workspace(), true);
  Scanner scanner = HWY_DYNAMIC_DISPATCH(find_scanner)(kMultiplies, args.x->dtype, args.y->dtype);
  scanner.is_exclusive = args.is_exclusive != 0;
  return launch.submit(
      [plan, scanner, threads = launch.thread_count()] { run_scan(plan, scanner, threads); });
}

template <typename Args, bool kMultiplies>
constexpr bp_kernel scan_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, scan_launch<Args, kMultiplies>, nullptr, scan_workspace<Args>>(
      kernel_row(name, op, kSumPairs));
}

}  // namespace

extern constinit const bp_kernel kCumsum =
    scan_kernel<bp_cumsum_args, false>("cumsum", BP_OP_CUMSUM);
extern constinit const bp_kernel kCumprod =
    scan_kernel<bp_cumprod_args, true>("cumprod", BP_OP_CUMPROD);

}  // namespace bp::kernels
#endif  // HWY_ONCE
