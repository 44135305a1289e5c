// A row that is dense on both sides is moved as bytes. A transposition goes tile by tile, through a
// buffer that stays in the nearest cache, and leaves it as whole lines of `to`.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/copy.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>

#include "backends/cpu/kernels/copy.hpp"
#include "backends/cpu/kernels/rows-inl.hpp"
#include "backends/cpu/kernels/transpose.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

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

// A tile of (to, from), where the inner axis is dense in `to`, and the one next to it in `from`.
template <typename T>
void copy_tile(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
               const void* options) {
  alignas(64) T buffer[kTileSide<T> * kTileSide<T>];
  const int inner = loop.rank - 1;
  transpose_elements(data[1], loop.strides[1][inner], reinterpret_cast<std::byte*>(buffer),
                     kTileSide<T>, rows, cols, sizeof(T));
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
}

template <typename T>
void copy_typed(const Loop& loop, int threads) {
  const int inner = loop.rank - 1;
  const RowOptions options = choose_row_options(loop);
  if (!loop.is_tiled || loop.strides[0][inner] != sizeof(T) ||
      loop.strides[1][inner - 1] != sizeof(T)) {
    return run_rows(loop, move_row<T>, threads, kGrain, options);
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
