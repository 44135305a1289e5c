// A row that is dense on both sides is moved as bytes. A transposition goes tile by tile: lines of
// `from` are transposed in registers into a buffer that stays in the nearest cache, and leave it as
// whole lines of `to`.
//
//   from   c0: r0 r1 r2 ...       to   r0: c0 c1 c2 ...
//          c1: r0 r1 r2 ...            r1: c0 c1 c2 ...

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/copy.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>

#include "backends/cpu/kernels/copy.hpp"
#include "backends/cpu/kernels/rows-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Past the caches, from any address to any.
void stream_bytes(const std::byte* from, std::byte* to, int64_t size_bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = std::min(count_to_line(to), size_bytes);
  std::memcpy(to, from, static_cast<size_t>(i));
  for (; i + step <= size_bytes; i += step) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d,
               reinterpret_cast<uint8_t*>(to + i));
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(size_bytes - i));
  hwy::FlushStream();
}

template <typename T>
struct Move {
  static void run(int64_t n, T* y, const T* x) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
  }
};

// data and strides are those of (to, from).
template <typename T>
void move_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* options) {
  if (strides[0] != sizeof(T) || strides[1] != sizeof(T)) {
    return Row<Move<T>, T, T>::run(data, strides, n, options);
  }
  const auto size_bytes = n * static_cast<int64_t>(sizeof(T));
  if (static_cast<const RowOptions*>(options)->is_streamed) {
    stream_bytes(data[1], data[0], size_bytes);
  } else {
    std::memcpy(data[0], data[1], static_cast<size_t>(size_bytes));
  }
}

// Elements along each side of a tile: 4 to 16 KiB, and whole lines of `to`.
template <typename T>
constexpr int64_t kTileSide = sizeof(T) == 8   ? 32
                              : sizeof(T) == 1 ? 128
                                               : 64;

// to[r][c] = from[c][r], where rows of `to` have kTileSide<T> elements, and those of `from` are
// `stride` bytes apart.
template <typename T>
void transpose_edge(const std::byte* from, int64_t stride, T* to, int64_t first_row, int64_t rows,
                    int64_t first_col, int64_t cols) {
  for (int64_t c = first_col; c < cols; ++c) {
    const T* const line = reinterpret_cast<const T*>(from + c * stride);
    for (int64_t r = first_row; r < rows; ++r) to[r * kTileSide<T> + c] = line[r];
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
template <typename T>
void transpose_tile(const std::byte* from, int64_t stride, T* to, int64_t rows, int64_t cols) {
  transpose_edge(from, stride, to, 0, rows, 0, cols);
}
#else
// Lines of 16 bytes, kSide of them, in each 16-byte block of the vectors: after log2(kSide) perfect
// shuffles of the lines they are transposed.
template <class D, class V, size_t kSide>
HWY_INLINE void transpose_blocks(D d, V (&lines)[kSide]) {
  for (size_t stage = 1; stage < kSide; stage *= 2) {
    V shuffled[kSide];
    for (size_t i = 0; i < kSide / 2; ++i) {
      shuffled[2 * i] = hn::InterleaveLower(d, lines[i], lines[i + kSide / 2]);
      shuffled[2 * i + 1] = hn::InterleaveUpper(d, lines[i], lines[i + kSide / 2]);
    }
    for (size_t i = 0; i < kSide; ++i) lines[i] = shuffled[i];
  }
}

// Elements of lines `at` and, in a second block, kSide lines further.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_blocks(D d, const std::byte* at, int64_t stride) {
  constexpr int64_t kSide = 16 / sizeof(T);
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 32) {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, reinterpret_cast<const T*>(at + kSide * stride)),
                       hn::LoadU(half, reinterpret_cast<const T*>(at)));
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(at));
  }
}

template <typename T>
void transpose_tile(const std::byte* from, int64_t stride, T* to, int64_t rows, int64_t cols) {
  const hn::CappedTag<T, 32 / sizeof(T)> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, 32 / sizeof(T)>()));
  constexpr int64_t kSide = 16 / sizeof(T);
  const int64_t whole_rows = rows / kSide * kSide, whole_cols = cols / kLanes * kLanes;
  for (int64_t c = 0; c < whole_cols; c += kLanes) {
    for (int64_t r = 0; r < whole_rows; r += kSide) {
      hn::Vec<decltype(d)> lines[kSide];
      const std::byte* const at = from + c * stride + r * static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < kSide; ++i) {
        lines[i] = load_blocks<decltype(d), T>(d, at + i * stride, stride);
      }
      transpose_blocks(d, lines);
      for (int64_t i = 0; i < kSide; ++i) {
        hn::Store(lines[i], d, to + (r + i) * kTileSide<T> + c);
      }
    }
  }
  transpose_edge(from, stride, to, whole_rows, rows, 0, whole_cols);
  transpose_edge(from, stride, to, 0, rows, whole_cols, cols);
}
#endif

// A tile of (to, from), where the inner axis is dense in `to`, and the one next to it in `from`.
template <typename T>
void copy_tile(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
               const void* options) {
  alignas(64) T buffer[kTileSide<T> * kTileSide<T>];
  const int inner = loop.rank - 1;
  transpose_tile(data[1], loop.strides[1][inner], buffer, rows, cols);
  const bool is_streamed = static_cast<const RowOptions*>(options)->is_streamed;
  std::byte* to = data[0];
  for (int64_t r = 0; r < rows; ++r, to += loop.strides[0][inner - 1]) {
    const T* const from = buffer + r * kTileSide<T>;
    if (is_streamed) {
      stream_block(from, reinterpret_cast<T*>(to), cols);
    } else {
      std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(T));
    }
  }
  if (is_streamed) hwy::FlushStream();
}

template <typename T>
void copy_typed(const Loop& loop, int threads) {
  const int inner = loop.rank - 1;
  const RowOptions options = choose_row_options(loop);
  if (!loop.is_tiled || loop.strides[0][inner] != sizeof(T) ||
      loop.strides[1][inner - 1] != sizeof(T)) {
    return run_loop(loop, move_row<T>, threads, kGrain, &options);
  }
  run_tiles(loop, copy_tile<T>, kTileSide<T>, kTileSide<T>, threads, kGrain, &options);
}

void copy(const Loop& loop, int64_t element_size_bytes, int threads) {
  switch (element_size_bytes) {
    case 1:
      return copy_typed<uint8_t>(loop, threads);
    case 2:
      return copy_typed<uint16_t>(loop, threads);
    case 4:
      return copy_typed<uint32_t>(loop, threads);
    default:
      return copy_typed<uint64_t>(loop, threads);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {

HWY_EXPORT(copy);

void run_copy(const Loop& loop, int64_t element_size_bytes, int threads) {
  HWY_DYNAMIC_DISPATCH(copy)(loop, element_size_bytes, threads);
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
