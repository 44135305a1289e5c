// Reads the lines of tensors into tiles (fourier.hpp), and writes them.
//
// Lines that lie side by side are read row by row. Lines whose elements lie behind each other are
// read in blocks of some elements of all lines, which are transposed in registers. Any other line
// is read element by element.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_FOURIER_TILES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_FOURIER_TILES_INL_HPP
#undef BACKPLANE_CPU_FOURIER_TILES_INL_HPP
#else
#define BACKPLANE_CPU_FOURIER_TILES_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/fourier.hpp"
#include "backends/host_kernels/fourier_passes-inl.hpp"
#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/transpose-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kMostLines = 16;  // Of a tile.

// The lines of a tile in one tensor. Strides are in elements.
template <typename T>
struct TileLines {
  TileLines(const FourierSide& side, const LineSpace& space, int64_t first, int64_t n)
      : count(n), has_parts(side.has_parts) {
    constexpr int64_t kSize = sizeof(T);
    step = side.lines.stride / kSize;
    part = side.part_stride / kSize;
    for (int64_t q = 0; q < n; ++q) {
      lines[static_cast<size_t>(q)] = reinterpret_cast<T*>(side.lines.line(space, first + q));
    }
    apart = n < 2 ? 0 : lines[1] - lines[0];
    for (int64_t q = 2; q < n; ++q) {
      if (lines[static_cast<size_t>(q)] != lines[0] + q * apart) apart = 0;
    }
  }

  // Whether the same elements of all lines lie behind each other, as the parts of a number do or as
  // real numbers.
  bool is_beside() const { return apart == 1 || (apart == 2 && has_parts && part == 1); }
  bool is_dense() const { return has_parts && step == 2 && part == 1; }

  std::array<T*, kMostLines> lines{};
  int64_t count, step = 0, part = 0;
  bool has_parts;
  int64_t apart = 0;  // From a line to the next one; 0 if they differ in it.
};

constexpr int64_t kChunk = 32;  // Elements of a line that are converted at once.

// A part of each line, where the parts of a number lie behind each other.
template <typename C>
struct TileChunk {
  HWY_ALIGN C lines[kMostLines][2 * kChunk];
};

// ---- Transpositions -------------------------------------------------------------------------- //

// Sets element i of row to(j) to element j of row from(i), for i < rows and j < cols.
template <typename C, class From, class To>
HWY_INLINE void transpose_rows(int64_t rows, int64_t cols, const From& from, const To& to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  constexpr size_t kSide = 16 / sizeof(C);
  constexpr bool kIsWide = HWY_TARGET <= HWY_AVX2;
  constexpr int64_t kRows = (kIsWide ? 2 : 1) * static_cast<int64_t>(kSide);
  const hn::CappedTag<C, kSide> half;
  const hn::CappedTag<C, static_cast<size_t>(kRows)> d;
  const int64_t whole = cols / static_cast<int64_t>(kSide) * static_cast<int64_t>(kSide);
  for (; i + kRows <= rows; i += kRows) {
    for (int64_t j = 0; j < whole; j += kSide) {
      hn::Vec<decltype(d)> square[kSide];
      for (size_t k = 0; k < kSide; ++k) {
        const auto row = i + static_cast<int64_t>(k);
        if constexpr (kIsWide) {
          square[k] = hn::Combine(d, hn::LoadU(half, from(row + kRows / 2) + j),
                                  hn::LoadU(half, from(row) + j));
        } else {
          square[k] = hn::LoadU(half, from(row) + j);
        }
      }
      transpose_blocks(d, square);
      for (size_t k = 0; k < kSide; ++k) {
        hn::StoreU(square[k], d, to(j + static_cast<int64_t>(k)) + i);
      }
    }
    for (int64_t j = whole; j < cols; ++j) {
      for (int64_t k = i; k < i + kRows; ++k) to(j)[k] = from(k)[j];
    }
  }
#endif
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) to(j)[i] = from(i)[j];
  }
}

// Takes the parts of n numbers apart. Vectors may be written behind the arrays.
template <typename C>
void split_parts(const C* from, int64_t n, Parts<C> to) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Number<hn::Vec<decltype(d)>> v;
    hn::LoadInterleaved2(d, from + 2 * i, v.re, v.im);
    store_number(v, d, to + i);
  }
  for (; i < n; ++i) {
    to.re[i] = from[2 * i];
    to.im[i] = from[2 * i + 1];
  }
}

// Joins the parts of n numbers, each times `scale`.
template <typename C>
void join_parts(Parts<C> from, int64_t n, C scale, C* to) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = load_number(d, from + i);
    hn::StoreInterleaved2(hn::Mul(v.re, by), hn::Mul(v.im, by), d, to + 2 * i);
  }
  for (; i < n; ++i) {
    to[2 * i] = from.re[i] * scale;
    to[2 * i + 1] = from.im[i] * scale;
  }
}

template <typename C>
HWY_INLINE void scale_line(const C* from, int64_t n, C scale, C* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * scale;
}

// ---- Rows of a tile -------------------------------------------------------------------------- //

// Reads the element at `from` of all lines into a row of a tile.
template <typename C, typename T>
void read_row(const TileLines<T>& lines, const T* from, Parts<C> row, C* chunk) {
  if (lines.apart == 2) {
    load_line(from, 1, 2 * lines.count, chunk);
    return split_parts(chunk, lines.count, row);
  }
  load_line(from, 1, lines.count, row.re);
  if (lines.has_parts) load_line(from + lines.part, 1, lines.count, row.im);
}

template <typename C, typename T>
void write_row(const TileLines<T>& lines, Parts<C> row, C scale, T* to, C* chunk) {
  if (lines.apart == 2) {
    join_parts(row, lines.count, scale, chunk);
    return store_line(chunk, 2 * lines.count, to, 1);
  }
  scale_line(row.re, lines.count, scale, chunk);
  store_line(chunk, lines.count, to, 1);
  if (!lines.has_parts) return;
  scale_line(row.im, lines.count, scale, chunk);
  store_line(chunk, lines.count, to + lines.part, 1);
}

// ---- Parts of lines -------------------------------------------------------------------------- //

// Reads n elements of one line, from `from` on.
template <typename C, typename T>
void read_chunk(const TileLines<T>& lines, const T* from, int64_t n, C* to) {
  if (lines.is_dense()) return load_line(from, 1, 2 * n, to);
  if (!lines.has_parts) return load_line(from, lines.step, n, to);
  HWY_ALIGN C re[kChunk], im[kChunk];
  load_line(from, lines.step, n, re);
  load_line(from + lines.part, lines.step, n, im);
  join_parts({re, im}, n, C{1}, to);
}

template <typename C, typename T>
void write_chunk(const TileLines<T>& lines, C* from, int64_t n, C scale, T* to) {
  scale_line(from, lines.has_parts ? 2 * n : n, scale, from);
  if (lines.is_dense()) return store_line(from, 2 * n, to, 1);
  if (!lines.has_parts) return store_line(from, n, to, lines.step);
  HWY_ALIGN C re[kChunk], im[kChunk];
  split_parts(from, n, Parts<C>{re, im});
  store_line(re, n, to, lines.step);
  store_line(im, n, to + lines.part, lines.step);
}

// ---- Tiles ----------------------------------------------------------------------------------- //

// Returns the row of a tile, from element i on, that element `at` of a chunk of lines belongs to.
template <typename C, typename T>
HWY_INLINE C* row_of(const TileLines<T>& lines, Parts<C> tile, int64_t i, int64_t at) {
  if (!lines.has_parts) return tile.re + (i + at) * lines.count;
  return (at % 2 == 0 ? tile.re : tile.im) + (i + at / 2) * lines.count;
}

// Reads n elements of the lines, from element i on, into a tile.
template <typename C, typename T>
void read_part(const TileLines<T>& lines, int64_t i, int64_t n, Parts<C> to, TileChunk<C>& chunk) {
  const C* numbers[kMostLines];
  for (int64_t q = 0; q < lines.count; ++q) {
    const T* const from = lines.lines[static_cast<size_t>(q)] + i * lines.step;
    numbers[q] = chunk.lines[q];
    if constexpr (std::is_same_v<T, C>) {
      if (lines.is_dense()) numbers[q] = from;
    }
    if (numbers[q] == chunk.lines[q]) read_chunk(lines, from, n, chunk.lines[q]);
  }
  if (lines.count == 1 && lines.has_parts) return split_parts(numbers[0], n, to + i);
  transpose_rows<C>(
      lines.count, lines.has_parts ? 2 * n : n, [&](int64_t q) HWY_ATTR { return numbers[q]; },
      [&](int64_t at) HWY_ATTR { return row_of(lines, to, i, at); });
}

// Writes n elements of a tile, from element i on, each times `scale`, to the lines.
template <typename C, typename T>
void write_part(Parts<C> from, int64_t i, int64_t n, C scale, const TileLines<T>& lines,
                TileChunk<C>& chunk) {
  if (lines.count == 1 && lines.has_parts) {
    join_parts(from + i, n, C{1}, chunk.lines[0]);
  } else {
    transpose_rows<C>(
        lines.has_parts ? 2 * n : n, lines.count,
        [&](int64_t at) HWY_ATTR { return row_of(lines, from, i, at); },
        [&](int64_t q) HWY_ATTR { return chunk.lines[q]; });
  }
  for (int64_t q = 0; q < lines.count; ++q) {
    T* const to = lines.lines[static_cast<size_t>(q)] + i * lines.step;
    write_chunk(lines, chunk.lines[q], n, scale, to);
  }
}

// Reads elements [0, n) of the lines into a tile.
template <typename C, typename T>
void read_tile(const TileLines<T>& lines, int64_t n, Parts<C> to) {
  TileChunk<C> chunk;
  if (!lines.has_parts) std::fill_n(to.im, n * lines.count, C{0});
  if (!lines.is_beside()) {
    for (int64_t i = 0; i < n; i += kChunk) {
      read_part(lines, i, std::min(kChunk, n - i), to, chunk);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* const from = lines.lines[0] + i * lines.step;
    read_row(lines, from, to + i * lines.count, chunk.lines[0]);
  }
}

// Writes elements [0, n) of a tile, each times `scale`, to the lines.
template <typename C, typename T>
void write_tile(Parts<C> from, int64_t n, C scale, const TileLines<T>& lines) {
  TileChunk<C> chunk;
  if (!lines.is_beside()) {
    for (int64_t i = 0; i < n; i += kChunk) {
      write_part(from, i, std::min(kChunk, n - i), scale, lines, chunk);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    T* const to = lines.lines[0] + i * lines.step;
    write_row(lines, from + i * lines.count, scale, to, chunk.lines[0]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_FOURIER_TILES_INL_HPP
