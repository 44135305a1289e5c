// Sums over small windows that slide over the rows of a plane, for avg_pool and for convolutions
// with one channel in each group.
//
// A band is a part of the input rows, with the padding around them. It is copied to memory that
// stays in the first-level cache, so that every tap of every output is a plain load. kBandRows
// output rows are summed together, each in one vector:
//
//   0 0 0 0 0 0
//   0 a b c d 0     output row 0 of 3x3 windows reads the lines 0 to 2 of the band,
//   0 e f g h 0     row 1 reads the lines 1 to 3
//   0 i j k l 0
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_WINDOW_BAND_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_WINDOW_BAND_INL_HPP
#undef BACKPLANE_CPU_WINDOW_BAND_INL_HPP
#else
#define BACKPLANE_CPU_WINDOW_BAND_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/host_kernels/pool_line-inl.hpp"

#ifndef BACKPLANE_CPU_BAND_SIZES
#define BACKPLANE_CPU_BAND_SIZES
namespace bp::kernels {

// The extents of a band, at most.
struct BandSizes {
  BandSizes(const Window& w, const std::array<int64_t, 3>& outputs)
      : cols(std::clamp<int64_t>(outputs[2], 1, kMostColumns)),
        width((w.columns_of(cols) + 2 * kSpare) / kSpare * kSpare) {
    const int64_t fitting = (kElements / width - w.rows_of(1)) / w.stride[1] + 1;
    rows = std::clamp<int64_t>(fitting, 1, std::max<int64_t>(1, outputs[1]));
    height = w.rows_of(rows);
  }
  int64_t elements() const { return width * height; }

  // Returns whether windows are small enough for bands.
  static bool is_fitting(const Window& w) {
    constexpr int64_t kMostTaps = 64, kMostLines = 64;
    return w.kernel[0] == 1 && w.low[0] == 0 && w.kernel[1] * w.kernel[2] <= kMostTaps &&
           w.stride[2] <= 2 && w.rows_of(1) <= kMostLines &&
           (w.kernel[2] - 1) * w.dilation[2] <= kMostColumns;
  }

  static constexpr int64_t kSpare = 16;  // A vector may end behind a line.
  static constexpr int64_t kElements = 6144, kMostColumns = 512;
  int64_t cols, width;           // The columns of outputs, and the elements of a line.
  int64_t rows = 1, height = 1;  // The rows of outputs, and the lines.
};

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kBandRows = 4;

// The outputs of a band, and its lines, which lie `width` elements apart.
template <typename Value>
struct Band {
  Range rows, cols;
  const Value* lines;
  int64_t width;
};

// Copies the inputs of a band, with zeros for padding. `x` is a slice of a plane.
template <typename T>
void fill_band(const Window& w, const Planes& x, const T* slice, const Band<Compute<T>>& band,
               Compute<T>* lines) {
  const ComputeTag<T> d;
  const LineBlock block(w, x.extent[2], band.cols);
  const int64_t n = block.inputs.size(), first = w.input_of(1, band.rows.begin, 0);
  const T* const from = slice + block.inputs.begin * x.stride[2];
  for (int64_t i = 0; i < w.rows_of(band.rows.size()); ++i, lines += band.width) {
    const int64_t row = first + i;
    if (row < 0 || row >= x.extent[1]) {
      std::fill_n(lines, band.width, Compute<T>{0});
      continue;
    }
    std::fill_n(lines, block.offset, Compute<T>{0});
    Compute<T>* const to = lines + block.offset;
    const T* const at = from + row * x.stride[1];
    if (x.stride[2] == 1) {
      for_each_vector(d, n, [&](int64_t c, auto whole) HWY_ATTR {
        hn::StoreU(load_part<whole>(d, at + c, n - c), d, to + c);
      });
    } else {
      for (int64_t c = 0; c < n; ++c) to[c] = widen(at[c * x.stride[2]]);
    }
    std::fill_n(to + n, band.width - block.offset - n, Compute<T>{0});
  }
}

// Calls visit(band) for the bands of a slice of a plane. They take turns in `lines`.
template <typename T, class Visit>
void for_each_band(const Window& w, const Planes& x, const T* slice,
                   const std::array<int64_t, 3>& outputs, Compute<T>* lines, const Visit& visit) {
  const BandSizes sizes(w, outputs);
  for (int64_t col = 0; col < outputs[2]; col += sizes.cols) {
    for (int64_t row = 0; row < outputs[1]; row += sizes.rows) {
      const Band<Compute<T>> band = {{row, std::min(outputs[1], row + sizes.rows)},
                                     {col, std::min(outputs[2], col + sizes.cols)},
                                     lines,
                                     sizes.width};
      fill_band(w, x, slice, band, lines);
      visit(band);
    }
  }
}

// Adds up the windows of one output row of a band, or of kBandRows rows, for a vector of outputs.
// `at` is the first element of the first window. add(sum, elements, tap) returns a longer sum.
template <int64_t kStride, class D, typename Value, class Add>
struct WindowSums {
  using Vector = hn::Vec<D>;

  // Calls visit(elements, tap) for the taps of a vector of outputs.
  template <class Visit>
  HWY_INLINE void for_each_tap(const Visit& visit) const {
    const Value* line = at;
    for (int64_t b = 0, tap = 0; b < w.kernel[1]; ++b, line += w.dilation[1] * width) {
      for (int64_t c = 0; c < w.kernel[2]; ++c, ++tap) visit(line + c * w.dilation[2], tap);
    }
  }
  HWY_INLINE Vector load(const Value* from) const {
    return load_every(d, from, kStride, static_cast<int64_t>(hn::Lanes(d)));
  }

  template <class Store>
  HWY_INLINE void sum_row(const Store& store) const {
    Vector sum = start;
    for_each_tap([&](const Value* from, int64_t tap) HWY_ATTR { sum = add(sum, load(from), tap); });
    store(sum, 0);
  }

  template <class Store>
  HWY_INLINE void sum_rows(const Store& store) const {
    const int64_t next = w.stride[1] * width;
    Vector s0 = start, s1 = start, s2 = start, s3 = start;
    for_each_tap([&](const Value* from, int64_t tap) HWY_ATTR {
      s0 = add(s0, load(from), tap);
      s1 = add(s1, load(from + next), tap);
      s2 = add(s2, load(from + 2 * next), tap);
      s3 = add(s3, load(from + 3 * next), tap);
    });
    store(s0, 0);
    store(s1, 1);
    store(s2, 2);
    store(s3, 3);
  }

  D d;
  const Window& w;
  const Value* at;
  int64_t width;
  Vector start;
  const Add& add;
};

// Calls store(sums, row, first, count, whole) for the vectors of the outputs of a band, whose
// windows are added to `start`. `row` counts in the plane, and `first` in the band.
template <int64_t kStride, class D, typename Value, class Add, class Store>
HWY_INLINE void sum_band(D d, const Window& w, const Band<Value>& band, hn::Vec<D> start,
                         const Add& add, const Store& store) {
  const int64_t n = band.cols.size();
  for (int64_t row = band.rows.begin; row < band.rows.end;) {
    const bool are_many = row + kBandRows <= band.rows.end;
    const Value* const lines = band.lines + (row - band.rows.begin) * w.stride[1] * band.width;
    for_each_vector(d, n, [&](int64_t c, auto whole) HWY_ATTR {
      const WindowSums<kStride, D, Value, Add> sums = {d,          w,     lines + c * kStride,
                                                       band.width, start, add};
      const auto store_row = [&](hn::Vec<D> v, int64_t r)
                                 HWY_ATTR { store(v, row + r, c, n - c, whole); };
      are_many ? sums.sum_rows(store_row) : sums.sum_row(store_row);
    });
    row += are_many ? kBandRows : 1;
  }
}

template <class D, typename Value, class Add, class Store>
HWY_INLINE void for_each_window_sum(D d, const Window& w, const Band<Value>& band, hn::Vec<D> start,
                                    const Add& add, const Store& store) {
  w.stride[2] == 1 ? sum_band<1>(d, w, band, start, add, store)
                   : sum_band<2>(d, w, band, start, add, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_WINDOW_BAND_INL_HPP
