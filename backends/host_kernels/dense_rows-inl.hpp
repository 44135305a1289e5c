// Writes dense rows whose elements lie behind each other, in front of each other, or with gaps.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_DENSE_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_DENSE_ROWS_INL_HPP
#undef BACKPLANE_CPU_DENSE_ROWS_INL_HPP
#else
#define BACKPLANE_CPU_DENSE_ROWS_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/host_kernels/rows-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Copies bytes. Where `to` lies less than a cache line behind `from`, modulo a page, processors of
// AMD copy several KiB with an eighth of their speed by the instruction that memcpy() uses (Zen 3:
// 5 in place of 40 GB/s). Such bytes are copied from the last to the first.
HWY_INLINE void copy_bytes(const std::byte* from, std::byte* to, int64_t size_bytes) {
  int64_t end = size_bytes;
#if HWY_TARGET != HWY_SCALAR
  constexpr uintptr_t kPageBytes = 4096, kLineBytes = 64;
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
  if (ahead % kPageBytes != 0 && ahead % kPageBytes < kLineBytes) {
    const hn::ScalableTag<uint8_t> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    for (; end >= step; end -= step) {
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + end - step)), d,
                 reinterpret_cast<uint8_t*>(to + end - step));
    }
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(end));
}

// Writes zeros past the caches.
HWY_INLINE void stream_zeros(std::byte* to, int64_t size_bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = std::min(count_to_line(to), size_bytes);
  std::memset(to, 0, static_cast<size_t>(i));
  for (; i + step <= size_bytes; i += step) {
    hn::Stream(hn::Zero(d), d, reinterpret_cast<uint8_t*>(to + i));
  }
  std::memset(to + i, 0, static_cast<size_t>(size_bytes - i));
}

// Copies the n elements that lie in front of each other, the first of them at `from`.
template <typename T>
HWY_INLINE void reverse_elements(const T* from, int64_t n, T* HWY_RESTRICT to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // No target reverses single bytes, so they are reversed in pairs, and then in each pair.
  using Bits = hwy::UnsignedFromSize<std::max<size_t>(sizeof(T), 2)>;
  const hn::ScalableTag<Bits> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d) * sizeof(Bits) / sizeof(T));
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::Reverse(d, hn::LoadU(d, reinterpret_cast<const Bits*>(from - i - lanes + 1)));
    if constexpr (sizeof(T) == 1) v = hn::Or(hn::ShiftLeft<8>(v), hn::ShiftRight<8>(v));
    hn::StoreU(v, d, reinterpret_cast<Bits*>(to + i));
  }
#endif
  for (; i < n; ++i) to[i] = from[-i];
}

// Does the same past the caches.
template <typename T>
HWY_INLINE void stream_reversed(const T* from, int64_t n, T* HWY_RESTRICT to) {
  BlockBuffer<T> buffer;
  const int64_t head = count_to_line(to);
  for (int64_t i = 0, count = 0; i < n; i += count) {
    count = std::min(i < head ? head - i : kBlock, n - i);
    reverse_elements(from - i, count, buffer.elements);
    stream_block(buffer.elements, to + i, count);
  }
}

// Copies n elements that are `stride` bytes apart.
template <typename T>
HWY_INLINE void gather_row(const std::byte* from, int64_t stride, int64_t n, T* HWY_RESTRICT to) {
  if (stride == 0) {
    std::fill_n(to, n, *reinterpret_cast<const T*>(from));
  } else if (stride == sizeof(T)) {
    copy_bytes(from, reinterpret_cast<std::byte*>(to), n * int64_t{sizeof(T)});
  } else if (stride == -int64_t{sizeof(T)}) {
    reverse_elements(reinterpret_cast<const T*>(from), n, to);
  } else {
    gather_elements_of_row(from, stride, n, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_DENSE_ROWS_INL_HPP
