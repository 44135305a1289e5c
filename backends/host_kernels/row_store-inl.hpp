// Memory access of rows that are computed one after another: results that are written past the
// caches, and rows that are prefetched.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ROW_STORE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ROW_STORE_INL_HPP
#undef BACKPLANE_CPU_ROW_STORE_INL_HPP
#else
#define BACKPLANE_CPU_ROW_STORE_INL_HPP
#endif

#include <algorithm>
#include <cstdint>

#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Stores value(lanes) at y for n elements, two vectors at a time.
template <typename T, class Value>
HWY_INLINE void store_elements(T* y, int64_t n, const Value& value) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    store_two(value(FullLanes<T>{i}), value(FullLanes<T>{i + lanes}), d, y + i);
  }
  if (i + lanes <= n) {
    store_lanes(value(FullLanes<T>{i}), d, y + i);
    i += lanes;
  }
  if (i == n) return;
  const LastLanes<T> last{i, static_cast<size_t>(n - i)};
  last.store(value(last), y);
}

// Stores value(lanes, i) at y + i for a row of `count` elements; lanes.at counts from i on. A
// caller that streams calls hwy::FlushStream() after the last row.
template <typename T, class Value>
HWY_INLINE void store_row(T* y, int64_t count, bool is_streamed, const Value& value) {
  if (!is_streamed) {
    store_elements(y, count, [&](auto lanes) HWY_ATTR { return value(lanes, 0); });
    return;
  }
  BlockBuffer<T> block;
  const int64_t head = std::min(count, count_to_line(y));
  for (int64_t i = 0, n = 0; i < count; i += n) {
    n = i < head ? head : std::min(kBlock, count - i);
    store_elements(block.elements, n, [&](auto lanes) HWY_ATTR { return value(lanes, i); });
    if (i < head) {
      std::copy_n(block.elements, n, y);
    } else {
      stream_block(block.elements, y + i, n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ROW_STORE_INL_HPP
