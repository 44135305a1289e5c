// cumsum and cumprod, for tensors of every layout (reduce.hpp, where the axis of the scan is the
// reduced one). Totals of floats are kept in f64, and totals of integers in 64 bits, which wrap.
//
//   along    one line after the other: a block of it is widened, scanned in a buffer, and narrowed
//   across   neighbouring lines side by side: the totals of all lines take one step at a time
//
// A scan of few long lines is cut into parts. The totals of all parts are found first, and each
// part then begins with the total of the parts before it. The order of operations depends on the
// shape alone, so equal input gives equal bits for any number of threads and on every target.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scan.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

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
};

// How one op scans one pair of dtypes. A total has 8 bytes.
struct Scanner {
  // Widens n elements, `stride` bytes apart, and narrows them.
  void (*load)(const std::byte* x, int64_t stride, int64_t n, void* to);
  void (*store)(const void* from, std::byte* y, int64_t stride, int64_t n);
  // Sets n totals to the total of no elements.
  void (*start)(void* totals, int64_t n);
  // Scans a tile from `totals` on, and leaves its totals there.
  void (*along)(const Scanner& scanner, const ScanTile& tile, void* totals);
  void (*across)(const Scanner& scanner, const ScanTile& tile, void* totals);
  // Replaces the totals of parts, (parts, lines), by the totals of all parts before each.
  void (*shift_parts)(void* totals, int64_t parts, int64_t lines);
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
  template <typename A>
  static HWY_INLINE A combine(A total, A x) {
    return total + x;
  }
};

struct Multiplication {
  static constexpr int kStart = 1;
  template <typename A>
  static HWY_INLINE A combine(A total, A x) {
    return total * x;
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
    for (; i < n; ++i) store_wide<Y>(wide[i], y + i * static_cast<int64_t>(sizeof(Y)));
  }
  for (; i < n; ++i) store_wide<Y>(wide[i], y + i * stride);
}

template <class Op, typename A>
void start(void* totals, int64_t n) {
  std::fill_n(static_cast<A*>(totals), n, static_cast<A>(Op::kStart));
}

// Replaces n elements by the totals up to each of them, from `total` on, and returns the last one.
// Four quarters are scanned side by side, because each step waits for the one before it.
template <class Op, typename A>
A scan_block(A* a, int64_t n, A total) {
  constexpr int64_t kQuarters = 4;
  const int64_t quarter = n / kQuarters;
  std::array<A, kQuarters> own;
  own.fill(static_cast<A>(Op::kStart));
  for (int64_t i = 0; i < quarter; ++i) {
    for (size_t q = 0; q < own.size(); ++q) {
      A& element = a[static_cast<int64_t>(q) * quarter + i];
      element = own[q] = Op::combine(own[q], element);
    }
  }
  for (size_t q = 0; q < own.size(); ++q) {
    A* const elements = a + static_cast<int64_t>(q) * quarter;
    for (int64_t i = 0; i < quarter; ++i) elements[i] = Op::combine(total, elements[i]);
    total = Op::combine(total, own[q]);
  }
  for (int64_t i = kQuarters * quarter; i < n; ++i) a[i] = total = Op::combine(total, a[i]);
  return total;
}

template <class Op, typename A>
void scan_along(const Scanner& scanner, const ScanTile& tile, void* totals) {
  constexpr int64_t kBlock = 1024;
  // The total before the block stands in front of its elements, where exclusive results begin.
  alignas(64) std::array<A, kBlock + 1> block;
  const A* const results = block.data() + (scanner.is_exclusive ? 0 : 1);
  for (int64_t line = 0; line < tile.n; ++line) {
    A& total = static_cast<A*>(totals)[line];
    const std::byte* const x = tile.x + line * tile.x_line;
    for (int64_t first = 0; first < tile.steps; first += kBlock) {
      const int64_t count = std::min(kBlock, tile.steps - first);
      block[0] = total;
      scanner.load(x + first * tile.x_step, tile.x_step, count, block.data() + 1);
      total = scan_block<Op>(block.data() + 1, count, total);
      if (tile.y == nullptr) continue;
      std::byte* const y = tile.y + line * tile.y_line + first * tile.y_step;
      scanner.store(results, y, tile.y_step, count);
    }
  }
}

template <class Op, typename A>
void scan_across(const Scanner& scanner, const ScanTile& tile, void* totals) {
  alignas(64) std::array<A, kTileWidth> row;
  auto* const total = static_cast<A*>(totals);
  for (int64_t step = 0; step < tile.steps; ++step) {
    scanner.load(tile.x + step * tile.x_step, tile.x_line, tile.n, row.data());
    const auto store = [&] {
      if (tile.y == nullptr) return;
      scanner.store(total, tile.y + step * tile.y_step, tile.y_line, tile.n);
    };
    if (scanner.is_exclusive) store();
    for (int64_t i = 0; i < tile.n; ++i) {
      total[i] = Op::combine(total[i], row[static_cast<size_t>(i)]);
    }
    if (!scanner.is_exclusive) store();
  }
}

template <class Op, typename A>
void shift_parts(void* totals, int64_t parts, int64_t lines) {
  auto* const all = static_cast<A*>(totals);
  for (int64_t line = 0; line < lines; ++line) {
    A before = static_cast<A>(Op::kStart);
    for (int64_t part = 0; part < parts; ++part) {
      A& place = all[part * lines + line];
      const A own = place;
      place = before;
      before = Op::combine(before, own);
    }
  }
}

template <class Op, typename T>
Scanner scanner_of(bp_dtype y) {
  using A = SumOf<T>;
  const auto store = with_number(y, []<typename Y>(Y) { return &store_elements<A, Y>; });
  return {load_elements<T>,  store, start<Op, A>, scan_along<Op, A>, scan_across<Op, A>,
          shift_parts<Op, A>};
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
  return place_parts(plan.axes, nullptr, false);
}

// Calls scan(tile, totals) for each tile. If the lines are cut, `totals` are those of the part in
// the workspace, else totals of no elements.
template <typename Scan>
void for_each_scan(const ScanPlan& plan, const Scanner& scanner, int threads, const Scan& scan) {
  const ReducePlan& axes = plan.axes;
  for_each_tile(axes, threads, kGrain, [&](int64_t part, int64_t line, int64_t n) {
    const auto [begin, end] = part_range(axes, part);
    const InnerStrides strides = inner_strides(axes);
    const ScanTile tile{.x = x_address(axes, line) + begin * plan.x_step,
                        .y = y_address(axes, line) + begin * plan.y_step,
                        .x_step = plan.x_step,
                        .y_step = plan.y_step,
                        .steps = end - begin,
                        .x_line = strides.kept_x,
                        .y_line = strides.kept_y,
                        .n = n};
    alignas(64) std::array<uint64_t, kTileWidth> own;
    void* totals = own.data();
    if (axes.part_count > 1) {
      totals = axes.parts + (part * axes.kept.count + line) * static_cast<int64_t>(sizeof(own[0]));
    } else {
      scanner.start(totals, n);
    }
    scan(tile, totals);
  });
}

void run_scan(const ScanPlan& plan, const Scanner& scanner, int threads) {
  const ReducePlan& axes = plan.axes;
  if (axes.kept.count == 0 || axes.reduced.count == 0) return;
  const auto scan = axes.is_across ? scanner.across : scanner.along;
  if (axes.part_count > 1) {
    for_each_scan(plan, scanner, threads, [&](ScanTile tile, void* totals) {
      tile.y = nullptr;
      scanner.start(totals, tile.n);
      scan(scanner, tile, totals);
    });
    scanner.shift_parts(axes.parts, axes.part_count, axes.kept.count);
  }
  for_each_scan(plan, scanner, threads,
                [&](const ScanTile& tile, void* totals) { scan(scanner, tile, totals); });
}

template <typename Args, bool kMultiplies>
bp_status scan_launch(const Args& args, Launch& launch) {
  ScanPlan plan = plan_of(args);
  place_parts(plan.axes, launch.workspace(), false);
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

constinit const bp_kernel kCumsum = scan_kernel<bp_cumsum_args, false>("cumsum", BP_OP_CUMSUM);
constinit const bp_kernel kCumprod = scan_kernel<bp_cumprod_args, true>("cumprod", BP_OP_CUMPROD);

}  // namespace bp::kernels
#endif  // HWY_ONCE
