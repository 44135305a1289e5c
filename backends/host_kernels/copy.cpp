// A row that is dense on both sides is copied as bytes, and one that is read backwards is reversed
// in registers. A transposition is done tile by tile, through a buffer in the first-level cache,
// and writes whole cache lines of `to`.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/copy.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cstring>

#include "backends/host_kernels/copy.hpp"
#include "backends/host_kernels/dense_rows-inl.hpp"
#include "backends/host_kernels/transpose.hpp"
#include "hwy/cache_control.h"
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
  const bool is_streamed = static_cast<const RowOptions*>(options)->is_streamed;
  if (strides[0] == sizeof(T) && strides[1] == -int64_t{sizeof(T)} && is_streamed) {
    const T* const last = reinterpret_cast<const T*>(data[1]);
    return stream_reversed(last, n, reinterpret_cast<T*>(data[0]));
  }
  if (strides[0] == sizeof(T) && strides[1] != 0 && strides[1] != sizeof(T) && !is_streamed) {
    return gather_row(data[1], strides[1], n, reinterpret_cast<T*>(data[0]));
  }
  if (strides[0] != sizeof(T) || strides[1] != sizeof(T)) {
    return Row<Move<T>, T, T>::run(data, strides, n, options);
  }
  const auto size_bytes = n * static_cast<int64_t>(sizeof(T));
  if (is_streamed) {
    stream_bytes(data[1], data[0], size_bytes);
  } else {
    copy_bytes(data[1], data[0], size_bytes);
  }
}

// Rows of bytes that lie apart from each other.
struct ByteRows {
  int64_t size_bytes;
  bool is_streamed;
};

constexpr int64_t kAhead = 4;             // Rows that are prefetched.
constexpr int64_t kFetchedBytes = 256;    // For the rest the hardware prefetches.
constexpr int64_t kShortRowBytes = 4096;  // Longer rows need no prefetch.

// Writes n copies of `size_bytes` bytes behind each other. What is written is copied in its turn,
// so that short rows are moved many at a time.
void repeat_bytes(const std::byte* from, std::byte* to, int64_t size_bytes, int64_t n) {
  constexpr int64_t kManyBytes = 8192;  // They stay in the first-level cache.
  const int64_t end = n * size_bytes;
  std::memcpy(to, from, static_cast<size_t>(size_bytes));
  int64_t period = size_bytes;
  for (int64_t done = size_bytes, count = 0; done < end; done += count) {
    count = std::min(period, end - done);
    std::memcpy(to + done, to, static_cast<size_t>(count));
    if (done == period && period < kManyBytes) period *= 2;
  }
}

// data and strides are those of (to, from); a stride is the distance of rows.
void move_byte_rows(std::byte* const* data, const int64_t* strides, int64_t n,
                    const void* context) {
  const auto& rows = *static_cast<const ByteRows*>(context);
  if (strides[1] == 0 && strides[0] == rows.size_bytes && !rows.is_streamed) {
    return repeat_bytes(data[1], data[0], rows.size_bytes, n);
  }
  const int64_t fetched_bytes = std::min(kFetchedBytes, rows.size_bytes);
  std::byte* to = data[0];
  const std::byte* from = data[1];
  for (int64_t i = 0; i < n; ++i, to += strides[0], from += strides[1]) {
    for (int64_t b = 0; i + kAhead < n && b < fetched_bytes; b += 64) {
      hwy::Prefetch(from + kAhead * strides[1] + b);
    }
    if (rows.is_streamed) {
      stream_bytes(from, to, rows.size_bytes);
    } else {
      copy_bytes(from, to, rows.size_bytes);
    }
  }
}

// Runs a loop whose rows are dense on both sides as a loop over whole rows.
void run_byte_rows(Loop loop, int64_t element_size_bytes, int threads, bool is_streamed) {
  const auto inner = static_cast<size_t>(--loop.rank);
  const ByteRows rows{loop.extents[inner] * element_size_bytes, is_streamed};
  const int64_t grain = std::max<int64_t>(1, kGrain / loop.extents[inner]);
  loop.count /= loop.extents[inner];
  run_loop(loop, move_byte_rows, threads, grain, &rows);
}

// The number of elements along each side of a tile. A tile has 4 to 16 KiB and whole cache lines of
// `to`.
template <typename T>
constexpr int64_t kTileSide = sizeof(T) == 8   ? 32
                              : sizeof(T) == 1 ? 128
                                               : 64;

// Copies a tile of (to, from). The inner axis is dense in `to`, and its neighbour is dense in
// `from`.
template <typename T>
void copy_tile(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
               const void* options) {
  alignas(64) T buffer[kTileSide<T> * kTileSide<T>];
  const int inner = loop.rank - 1;
  transpose_elements({.from = data[1],
                      .from_stride = loop.strides[1][inner],
                      .to = reinterpret_cast<std::byte*>(buffer),
                      .to_pitch = kTileSide<T>,
                      .rows = rows,
                      .cols = cols},
                     sizeof(T));
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
  if (loop.count == 0) return;
  const int inner = loop.rank - 1;
  const RowOptions options = choose_row_options(loop);
  const bool is_dense =
      inner > 0 && loop.strides[0][inner] == sizeof(T) && loop.strides[1][inner] == sizeof(T);
  const int64_t row_length = inner > 0 ? loop.extents[static_cast<size_t>(inner)] : 0;
  if (is_dense && !loop.is_tiled && row_length * int64_t{sizeof(T)} <= kShortRowBytes) {
    return run_byte_rows(loop, sizeof(T), threads, options.is_streamed);
  }
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
