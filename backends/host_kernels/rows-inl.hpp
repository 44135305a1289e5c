// Makes row functions (loop.hpp) from functions on dense blocks of elements.
//
//   Row<Block, Y, X...>::run    walks a row of any strides block by block and calls
//   Block::run(n, y, x...)      for n <= kBlock elements that lie behind each other
//
// An operand with gaps is gathered into a buffer first. A single value is repeated in such a buffer
// once. A result with gaps is scattered from a buffer. The buffers stay in the first-level cache,
// so every layout runs on vectors. A streamed result also goes through a buffer, and from there
// past the caches; run_rows() waits for it.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ROWS_INL_HPP
#undef BACKPLANE_CPU_ROWS_INL_HPP
#else
#define BACKPLANE_CPU_ROWS_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/loop.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kBlock = 512;
constexpr int64_t kAheadBytes = 4096;  // The size of a page.

// Prefetches the line `ahead` elements behind x, where there may be no memory. The hardware
// prefetcher stops at the end of a page, where the next row often begins.
template <typename T>
HWY_INLINE void prefetch(const T* x, int64_t ahead) {
  const auto at = reinterpret_cast<uintptr_t>(x) + static_cast<uintptr_t>(ahead) * sizeof(T);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody reads through it.
  hwy::Prefetch(reinterpret_cast<const T*>(at));
}

template <typename T>
struct BlockBuffer {
  BlockBuffer() {}  // Its elements are written before they are read.
  alignas(64) T elements[kBlock];
};

// Copies n elements with gaps to `to`, which is dense.
template <typename T>
HWY_INLINE void gather_elements_of_row(const std::byte* from, int64_t stride, int64_t n,
                                       T* HWY_RESTRICT to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (stride == 2 * sizeof(T)) {
    using Bits = hwy::UnsignedFromSize<sizeof(T)>;
    const hn::ScalableTag<Bits> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto* const x = reinterpret_cast<const Bits*>(from);
    // There may be no memory behind the last element.
    for (; i + lanes < n; i += lanes) {
      const auto lower = hn::LoadU(d, x + 2 * i), upper = hn::LoadU(d, x + 2 * i + lanes);
      hn::StoreU(hn::ConcatEven(d, upper, lower), d, reinterpret_cast<Bits*>(to + i));
    }
  }
#endif
  for (from += i * stride; i < n; ++i, from += stride) to[i] = *reinterpret_cast<const T*>(from);
}

// Returns the elements [i, i + n) of an operand of `count` elements, without gaps.
template <typename T>
HWY_INLINE const T* gather_block(const std::byte* from, int64_t stride, int64_t count, int64_t i,
                                 int64_t n, BlockBuffer<T>& buffer) {
  if (stride == sizeof(T)) return reinterpret_cast<const T*>(from) + i;
  if (stride == 0) {
    if (i == 0) {
      std::fill_n(buffer.elements, std::min(count, kBlock), *reinterpret_cast<const T*>(from));
    }
    return buffer.elements;
  }
  gather_elements_of_row(from + i * stride, stride, n, buffer.elements);
  return buffer.elements;
}

template <typename T>
HWY_INLINE void scatter_block(const T* from, std::byte* to, int64_t stride, int64_t n) {
  for (int64_t j = 0; j < n; ++j, to += stride) *reinterpret_cast<T*>(to) = from[j];
}

// Returns how many elements lie before the next multiple of 64 bytes.
template <typename T>
int64_t count_to_line(const T* at) {
  return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(at) % 64 / sizeof(T));
}

// Streams n elements. `to` is a multiple of 64 bytes, or the n elements end at one. `from` is the
// beginning of a buffer.
template <typename T>
HWY_INLINE void stream_block(const T* from, T* to, int64_t n) {
  const hn::ScalableTag<uint64_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d) * sizeof(uint64_t) / sizeof(T));
  int64_t i = 0;
  for (const int64_t end = count_to_line(to) == 0 ? n : 0; i + step <= end; i += step) {
    hn::Stream(hn::Load(d, reinterpret_cast<const uint64_t*>(from + i)), d,
               reinterpret_cast<uint64_t*>(to + i));
  }
  std::copy(from + i, from + n, to + i);
}

// Copies bytes past the caches, from any address to any address.
HWY_INLINE void stream_bytes(const std::byte* from, std::byte* to, int64_t size_bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = std::min(count_to_line(to), size_bytes);
  std::memcpy(to, from, static_cast<size_t>(i));
  for (; i + step <= size_bytes; i += step) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d,
               reinterpret_cast<uint8_t*>(to + i));
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(size_bytes - i));
}

template <class Block, typename Y, typename... X>
struct Row {
  // data and strides are those of (y, x...); `options` is a RowOptions or NULL.
  static void run(std::byte* const* data, const int64_t* strides, int64_t count,
                  const void* options) {
    const bool is_dense = strides[0] == sizeof(Y);
    const bool is_streamed =
        is_dense && options != nullptr && static_cast<const RowOptions*>(options)->is_streamed;
    run(data, strides, count, is_dense && !is_streamed, is_streamed,
        std::index_sequence_for<X...>());
  }

 private:
  template <size_t... k>
  static void run(std::byte* const* data, const int64_t* strides, int64_t count, bool is_direct,
                  bool is_streamed, std::index_sequence<k...>) {
    BlockBuffer<Y> result;
    std::tuple<BlockBuffer<X>...> buffers;
    Y* const y = reinterpret_cast<Y*>(data[0]);
    // Streamed blocks begin at whole cache lines. The elements before the first line are a block of
    // their own.
    const int64_t head = is_streamed ? count_to_line(y) : 0;
    for (int64_t i = 0, n = 0; i < count; i += n) {
      n = std::min(i < head ? head - i : kBlock, count - i);
      Block::run(n, is_direct ? y + i : result.elements,
                 gather_block(data[k + 1], strides[k + 1], count, i, n, std::get<k>(buffers))...);
      if (is_direct) continue;
      if (is_streamed && i >= head) {
        stream_block(result.elements, y + i, n);
      } else {
        scatter_block(result.elements, data[0] + i * strides[0], strides[0], n);
      }
    }
  }
};

// Returns Op()(d, x...). An op may have a function narrow() for results that are rounded to 16
// bits.
template <class Op, typename T, class D, class... V>
HWY_INLINE hn::Vec<D> apply(D d, V... x) {
  if constexpr (kIsNarrow<T> && requires { &Op::template narrow<D>; }) {
    return Op().narrow(d, x...);
  } else {
    return Op()(d, x...);
  }
}

// Computes y = Op()(d, x...) in Compute<T>, and prefetches the elements one page further on. Op
// works on each lane by itself, so that an element does not depend on its position.
template <class Op, typename T>
struct Map {
  template <typename... X>
  static void run(int64_t n, T* y, const X*... x) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    if constexpr (kIsNarrow<T>) {
      for (; i + 2 * lanes <= n; i += 2 * lanes) {
        (prefetch(x + i, kAheadBytes / int64_t{sizeof(X)}), ...);
        store_two(apply<Op, T>(d, load_lanes(d, x + i)...),
                  apply<Op, T>(d, load_lanes(d, x + i + lanes)...), d, y + i);
      }
    }
    for (; i + lanes <= n; i += lanes) {
      (prefetch(x + i, kAheadBytes / int64_t{sizeof(X)}), ...);
      store_lanes(apply<Op, T>(d, load_lanes(d, x + i)...), d, y + i);
    }
    if (i == n) return;
    const auto rest = static_cast<size_t>(n - i);
    store_lanes_n(apply<Op, T>(d, load_lanes_n(d, x + i, rest)...), d, y + i, rest);
  }
};

template <typename T, size_t>
using Repeated = T;

// Returns the row function of Op over kInputs tensors of T, with a result of T.
template <class Op, typename T, int kInputs>
constexpr RowFunction* map_row() {
  return []<size_t... k>(std::index_sequence<k...>)->RowFunction* {
    return Row<Map<Op, T>, T, Repeated<T, k>...>::run;
  }
  (std::make_index_sequence<kInputs>());
}

// Returns the same function for a last input in Compute<T>.
template <class Op, typename T, int kInputs>
constexpr RowFunction* operand_row() {
  return []<size_t... k>(std::index_sequence<k...>)->RowFunction* {
    return Row<Map<Op, T>, T, Repeated<T, k>..., Compute<T>>::run;
  }
  (std::make_index_sequence<kInputs - 1>());
}

// Returns the row function of Op for a dtype of kFloatDtypes.
template <class Op, int kInputs>
RowFunction* floating_row(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) { return map_row<Op, T, kInputs>(); });
}

// Returns elements in a type that the compiler computes with. 16-bit floats are widened into
// `buffer`.
template <typename T>
HWY_INLINE const Compute<T>* widen_block(const T* x, int64_t n, BlockBuffer<Compute<T>>& buffer) {
  if constexpr (!kIsNarrow<T>) {
    return x;
  } else {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) store_lanes(load_lanes(d, x + i), d, buffer.elements + i);
    for (; i < n; ++i) buffer.elements[i] = widen(x[i]);
    return buffer.elements;
  }
}

// Stores f32 as 16-bit floats.
template <typename T>
HWY_INLINE void narrow_block(int64_t n, T* y, const float* x) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_lanes(load_lanes(d, x + i), d, y + i);
  for (; i < n; ++i) y[i] = T::from_f32(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ROWS_INL_HPP
