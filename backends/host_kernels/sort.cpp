// sort and topk work line by line along the axis (records.hpp). Threads share the lines. Each
// thread has room for the records of one line in the workspace.
//
// topk reads a line once, and keeps the elements that are better than the worst of the best k so
// far. The first bound comes from the first 1024 elements. Vectors without a better element are
// skipped at once. If k is not small, topk sorts the line.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/sort.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <array>
#include <bit>
#include <utility>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/line_operands.hpp"
#include "backends/host_kernels/records.hpp"
#include "hwy/highway.h"

#ifndef BACKPLANE_CPU_SORT_PLAN
#define BACKPLANE_CPU_SORT_PLAN
namespace bp::kernels {
namespace {

struct SortPlan {
  LineOperand x, y, indices;  // No address of indices if not wanted.
  bool is_descending = false;
  bool is_i64 = true;         // The dtype of the indices.
  int64_t extent = 0, k = 0;  // The line's length, and the wanted elements.
  LineSpace lines;
  int64_t capacity = 0;  // A thread has room for twice as many.
};

// If the extent is below 2^32, an index has 32 bits.
constexpr int64_t kPackedExtent = int64_t{1} << 32;

inline bool is_wide(bp_dtype dtype, int64_t extent) {
  return dtype_size_bytes(dtype) > 4 || extent >= kPackedExtent;
}

// Returns whether the best k are selected, and the line is not sorted. Selection needs few records,
// or less time than sorting a short line.
inline bool is_selected(int64_t extent, int64_t k) {
  constexpr int64_t kShort = 256;
  return k <= (extent <= kShort ? extent / 2 : extent / 16);
}

// Sorts the lines [begin, end), with room for 2 * capacity records.
using SortLines = void(const SortPlan& plan, int64_t begin, int64_t end, std::byte* room);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The elements of one line. In descending order the keys are inverted, but indices still ascend.
template <typename T>
struct Line {
  const std::byte* x;
  int64_t stride;
  BitsOf<T> inversion;

  HWY_INLINE T element(int64_t i) const { return *reinterpret_cast<const T*>(x + i * stride); }
  // An integer is computed from its key. A float is read again from the line, because several
  // floats can have the same key.
  template <class Record>
  HWY_INLINE T element_of(const Record& record) const {
    if constexpr (std::is_integral_v<T>) {
      return integer_of<T>(static_cast<BitsOf<T>>(record.key()) ^ inversion);
    } else {
      return element(record.index());
    }
  }
  HWY_INLINE BitsOf<T> key(int64_t i) const {
    return static_cast<BitsOf<T>>(key_of(element(i)) ^ inversion);
  }
};

// The number of keys that are computed side by side if the line is dense.
constexpr int64_t kKeyBlock = 128;

template <typename T>
HWY_INLINE void load_keys(const Line<T>& line, int64_t first, int64_t n, BitsOf<T>* keys) {
  if (line.stride == sizeof(T)) {
    const T* const x = reinterpret_cast<const T*>(line.x) + first;
    for (int64_t i = 0; i < n; ++i) keys[i] = static_cast<BitsOf<T>>(key_of(x[i]) ^ line.inversion);
  } else {
    for (int64_t i = 0; i < n; ++i) keys[i] = line.key(first + i);
  }
}

template <typename T, class Record>
Record* sort_line(const Line<T>& line, int64_t n, Record* a, Record* b) {
  alignas(64) BitsOf<T> keys[kKeyBlock];
  for (int64_t first = 0; first < n; first += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, n - first);
    load_keys(line, first, count, keys);
    for (int64_t i = 0; i < count; ++i) a[first + i] = Record::make(keys[i], first + i);
  }
  return sort_records<sizeof(T)>(a, b, n);
}

constexpr int64_t kSelectBlock = 1024;  // Keys that topk computes at a time.

// Returns how many of n keys do not exceed `limit`. The keys are whole vectors.
template <class D, typename Bits>
HWY_INLINE int64_t count_up_to(D d, const Bits* keys, int64_t n, Bits limit) {
  const auto limits = hn::Set(d, limit);
  size_t above = 0;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    above += hn::CountTrue(d, hn::Lt(limits, hn::Load(d, keys + i)));
  }
  return n - static_cast<int64_t>(above);
}

// Returns a key that at least k of n keys do not exceed, and few more than k. Bisection has few
// unpredictable branches, and stops before it finds the key that exactly k keys do not exceed.
template <class D, typename Bits>
HWY_INLINE Bits bisect(D d, const Bits* keys, int64_t n, int64_t k) {
  auto lows = hn::Load(d, keys), highs = lows;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    lows = hn::Min(lows, hn::Load(d, keys + i));
    highs = hn::Max(highs, hn::Load(d, keys + i));
  }
  Bits low = hn::GetLane(hn::MinOfLanes(d, lows)), high = hn::GetLane(hn::MaxOfLanes(d, highs));
  while (low < high) {
    const auto middle = static_cast<Bits>(low + (high - low) / 2);
    const int64_t count = count_up_to(d, keys, n, middle);
    if (count < k) {
      low = static_cast<Bits>(middle + 1);
    } else {
      high = middle;
      if (count <= k + k / 4 + 2) break;
    }
  }
  return high;
}

// Sets `bound` to a key that at least k keys do not exceed, if such a key is found at little cost.
// The keys are in groups, and the smallest keys of k groups are k keys.
template <typename Bits>
bool find_bound(const Bits* keys, int64_t n, int64_t k, Bits& bound) {
  constexpr int64_t kMaxGroups = 256;
  const int64_t groups = k <= 32 ? 64 : kMaxGroups;
  if (2 * k > groups || 2 * groups > n) return false;
  const hn::CappedTag<Bits, 32> d;  // Both group counts are whole vectors.
  alignas(64) Bits least[kMaxGroups];
  for (int64_t g = 0; g < groups; g += static_cast<int64_t>(hn::Lanes(d))) {
    auto smallest = hn::Load(d, keys + g);
    for (int64_t i = g + groups; i - g + groups <= n; i += groups) {
      smallest = hn::Min(smallest, hn::Load(d, keys + i));
    }
    hn::Store(smallest, d, least + g);
  }
  bound = static_cast<Bits>(bisect(d, least, groups, k) + 1);
  return bound != 0;
}

// The best elements so far, in room for `capacity` records.
template <typename T, class Record>
struct Selection {
  Record* a;
  int64_t k, capacity;
  int64_t kept = 0;
  // Once k better elements are known, only elements below the bound are wanted, because of equal
  // elements the first one wins.
  bool is_bounded = false;
  BitsOf<T> bound = 0;

  void shrink() {
    std::nth_element(a, a + (k - 1), a + kept);
    kept = k;
    is_bounded = true;
    bound = static_cast<BitsOf<T>>(a[k - 1].key());
  }

  HWY_INLINE void add(const BitsOf<T>* keys, int64_t first, int64_t n) {
    if (kept + n > capacity) shrink();
    for (int64_t i = 0; i < n; ++i) {
      a[kept] = Record::make(keys[i], first + i);
      kept += !is_bounded || keys[i] < bound ? 1 : 0;
    }
  }

  // Adds the elements from number `first` on, of which few are wanted.
  HWY_INLINE void add_block(const BitsOf<T>* keys, int64_t first, int64_t n) {
    const hn::ScalableTag<BitsOf<T>> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto is_wanted = hn::Lt(hn::Load(d, keys + i), hn::Set(d, bound));
      if (is_bounded && hn::AllFalse(d, is_wanted)) continue;
      add(keys + i, first + i, lanes);
    }
    add(keys + i, first + i, n - i);
  }
};

// Puts the first k of n records in order. There is room for `capacity` records.
template <typename T, class Record>
Record* select_line(const Line<T>& line, int64_t n, int64_t k, int64_t capacity, Record* a) {
  alignas(64) BitsOf<T> keys[kSelectBlock];
  Selection<T, Record> selection{a, k, capacity};
  for (int64_t first = 0; first < n; first += kSelectBlock) {
    const int64_t count = std::min(kSelectBlock, n - first);
    load_keys(line, first, count, keys);
    if (first == 0) selection.is_bounded = find_bound(keys, count, k, selection.bound);
    selection.add_block(keys, first, count);
  }
  if (selection.kept > k) selection.shrink();
  std::sort(a, a + k);
  return a;
}

template <typename T, class Record>
void write_line(const SortPlan& plan, const Line<T>& line, const Record* records, std::byte* y,
                std::byte* indices) {
  for (int64_t i = 0; i < plan.k; ++i) {
    *reinterpret_cast<T*>(y + i * plan.y.stride) = line.element_of(records[i]);
  }
  for (int64_t i = 0; i < plan.k && indices != nullptr; ++i) {
    store_index(indices + i * plan.indices.stride, plan.is_i64, records[i].index());
  }
}

template <typename T, class Record>
void sort_lines(const SortPlan& plan, int64_t begin, int64_t end, std::byte* room) {
  auto* const a = reinterpret_cast<Record*>(room);
  Record* const b = a + plan.capacity;
  for (int64_t number = begin; number < end; ++number) {
    const std::byte* const x = plan.x.line(plan.lines, number);
    const auto inversion = plan.is_descending ? ~uint64_t{0} : uint64_t{0};
    const Line<T> line = {x, plan.x.stride, static_cast<BitsOf<T>>(inversion)};
    const Record* const sorted = is_selected(plan.extent, plan.k)
                                     ? select_line(line, plan.extent, plan.k, plan.capacity, a)
                                     : sort_line(line, plan.extent, a, b);
    write_line(plan, line, sorted, plan.y.line(plan.lines, number),
               plan.indices.line(plan.lines, number));
  }
}

template <typename T>
SortLines* lines_of(bool is_wide) {
  if constexpr (sizeof(T) == 8) return sort_lines<T, Wide>;
  return is_wide ? sort_lines<T, Wide> : sort_lines<T, Packed>;
}

SortLines* find_sort(bp_dtype dtype, bool is_wide) {
  return with_number(dtype, [=]<typename T>(T) { return lines_of<T>(is_wide); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_sort);

constexpr int64_t kSortGrain = 4096;  // With fewer elements a team costs more.

SortPlan plan_of(const bp_tensor& x, const bp_tensor& y, const bp_tensor* indices, int32_t its_axis,
                 bool is_descending) {
  const auto axis = static_cast<size_t>(its_axis);
  SortPlan plan;
  plan.x = LineOperand(&x, axis);
  plan.y = LineOperand(&y, axis);
  plan.indices = LineOperand(indices, axis);
  plan.is_i64 = indices == nullptr || indices->dtype == BP_I64;
  plan.is_descending = is_descending;
  plan.extent = axis_extent(x, axis);
  plan.k = axis_extent(y, axis);
  plan.lines = LineSpace(x, axis);
  constexpr int64_t kLeast = 1024;  // Room for elements until the bound is updated.
  plan.capacity =
      is_selected(plan.extent, plan.k) ? std::min(plan.extent, 2 * plan.k + kLeast) : plan.extent;
  return plan;
}

int64_t slots_of(const SortPlan& plan, const Env& env) {
  if (plan.lines.count * plan.extent < 2 * kSortGrain) return 1;
  return std::max<int64_t>(1, std::min<int64_t>(env.thread_count(), plan.lines.count));
}

int64_t room_bytes(const SortPlan& plan, bp_dtype dtype) {
  return 2 * plan.capacity * (is_wide(dtype, plan.extent) ? 16 : 8);
}

bp_status submit_sort(const SortPlan& plan, bp_dtype dtype, const Launch& launch) {
  SortLines* const run = HWY_DYNAMIC_DISPATCH(find_sort)(dtype, is_wide(dtype, plan.extent));
  const int64_t slots = slots_of(plan, launch), slot_bytes = room_bytes(plan, dtype);
  return launch.submit([=, threads = launch.thread_count(), room = launch.workspace()] {
    if (plan.k == 0) return;
    parallel_for(threads, slots, 1, [&](int64_t first, int64_t last) {
      for (int64_t slot = first; slot < last; ++slot) {
        run(plan, plan.lines.count * slot / slots, plan.lines.count * (slot + 1) / slots,
            room + slot * slot_bytes);
      }
    });
  });
}

SortPlan plan_of(const bp_sort_args& args) {
  return plan_of(*args.x, *args.y, args.indices, args.axis, args.is_descending != 0);
}

SortPlan plan_of(const bp_topk_args& args) {
  return plan_of(*args.x, *args.y, args.indices, args.axis, args.is_largest != 0);
}

template <typename Args>
uint64_t sort_workspace(const Args& args, const Env& env) {
  const SortPlan plan = plan_of(args);
  return static_cast<uint64_t>(slots_of(plan, env) * room_bytes(plan, args.x->dtype));
}

template <typename Args>
bp_reason sort_supports(const Args& args) {
  return index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args>
bp_status sort_launch(const Args& args, Launch& launch) {
  return submit_sort(plan_of(args), args.x->dtype, launch);
}

}  // namespace

extern constinit const bp_kernel kSort =
    make_kernel<bp_sort_args, sort_launch<bp_sort_args>, sort_supports<bp_sort_args>,
                sort_workspace<bp_sort_args>>(kernel_row("sort", BP_OP_SORT, {kDtypes, 2}));
extern constinit const bp_kernel kTopk =
    make_kernel<bp_topk_args, sort_launch<bp_topk_args>, sort_supports<bp_topk_args>,
                sort_workspace<bp_topk_args>>(kernel_row("topk", BP_OP_TOPK, {kDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
