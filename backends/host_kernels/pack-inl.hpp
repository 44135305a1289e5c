// Copies the operands of a product into panels of lines, in which the elements of one depth are
// neighbours:
//
//   to[line / kPanel][depth][line % kPanel], of Sum whatever the dtype of the operand
//
// Zeros fill the rest of the last panel. Lines along the depth are transposed in registers. When
// elements were copied one by one, the copies took a tenth of the time of an f64 product of 512^3.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_PACK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_PACK_INL_HPP
#undef BACKPLANE_CPU_PACK_INL_HPP
#else
#define BACKPLANE_CPU_PACK_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Turns `count` elements of each line into as many rows of a panel.
template <int64_t kPanel, typename Sum>
HWY_INLINE void transpose_to_panel(const Sum* const (&lines)[kPanel], int64_t count,
                                   Sum* HWY_RESTRICT to) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  constexpr auto kSide = static_cast<int64_t>(16 / sizeof(Sum));
  constexpr int64_t kWhole = kPanel / kSide * kSide;
  for (; k + kSide <= count; k += kSide, to += kSide * kPanel) {
    int64_t line = 0;
    for (; line + 2 * kSide <= kWhole; line += 2 * kSide) {
      transpose_lines<2>(lines + line, k, to + line, kPanel);
    }
    if (line < kWhole) transpose_lines<1>(lines + line, k, to + line, kPanel);
    for (line = kWhole; line < kPanel; ++line) {
      for (int64_t i = 0; i < kSide; ++i) to[i * kPanel + line] = lines[line][k + i];
    }
  }
#endif
  for (; k < count; ++k, to += kPanel) {
    for (int64_t line = 0; line < kPanel; ++line) to[line] = lines[line][k];
  }
}

// Packs lines that lie along the depth, or with any strides.
template <int64_t kPanel, typename Sum, typename T>
void pack_across(const Matrix& from, Sum* HWY_RESTRICT to) {
  constexpr int64_t kPartElements = 64;
  Sum buffers[kPanel][kPartElements];
  const Sum* lines[kPanel];
  for (int64_t begin = 0; begin < from.rows; begin += kPanel) {
    const int64_t count = std::min(kPanel, from.rows - begin);
    for (int64_t line = count; line < kPanel; ++line) {
      std::fill_n(buffers[line], kPartElements, Sum{});
      lines[line] = buffers[line];
    }
    for (int64_t k = 0; k < from.cols; k += kPartElements) {
      const int64_t part = std::min(kPartElements, from.cols - k);
      for (int64_t line = 0; line < count; ++line) {
        const T* const elements = reinterpret_cast<const T*>(from.at(begin + line, k));
        if constexpr (std::is_same_v<T, Sum>) {
          if (from.col_stride == 1) {
            lines[line] = elements;
            continue;
          }
        }
        load_line(elements, from.col_stride, part, buffers[line]);
        lines[line] = buffers[line];
      }
      transpose_to_panel(lines, part, to);
      to += part * kPanel;
    }
  }
}

// Packs lines that are neighbours in memory. It reads across the lines, for several panels at a
// time.
template <int64_t kPanel, typename Sum, typename T>
void pack_along(const Matrix& from, Sum* HWY_RESTRICT to) {
  constexpr int64_t kPartLines = 192 / kPanel * kPanel;
  HWY_ALIGN Sum part[kPartLines];
  for (int64_t begin = 0; begin < from.rows; begin += kPartLines, to += kPartLines * from.cols) {
    const int64_t count = std::min(kPartLines, from.rows - begin);
    const int64_t whole = std::is_same_v<T, Sum> ? count / kPanel * kPanel : 0;
    std::fill_n(part + count, ceil_div(count, kPanel) * kPanel - count, Sum{});
    for (int64_t k = 0; k < from.cols; ++k) {
      const T* const elements = reinterpret_cast<const T*>(from.at(begin, k));
      Sum* panel = to + k * kPanel;
      for (int64_t line = 0; line < whole; line += kPanel, panel += kPanel * from.cols) {
        load_dense_line(elements + line, kPanel, panel);
      }
      load_dense_line(elements + whole, count - whole, part + whole);
      for (int64_t line = whole; line < count; line += kPanel, panel += kPanel * from.cols) {
        std::copy_n(part + line, kPanel, panel);
      }
    }
  }
}

template <int64_t kPanel, typename Sum>
void pack_panels(const Matrix& from, Sum* to) {
  with_element_of<Sum>(from.dtype, [&]<typename T>(T) {
    if (from.row_stride == 1 && from.rows > 1) {
      pack_along<kPanel, Sum, T>(from, to);
    } else {
      pack_across<kPanel, Sum, T>(from, to);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_PACK_INL_HPP
