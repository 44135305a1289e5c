#include "backends/cpu/kernels/transpose.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/transpose.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "backends/cpu/kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The elements from (first_row, first_col) on, one by one.
template <typename T>
void transpose_edge(const std::byte* from, int64_t stride, T* to, int64_t pitch, int64_t first_row,
                    int64_t rows, int64_t first_col, int64_t cols) {
  for (int64_t c = first_col; c < cols; ++c) {
    const T* const line = reinterpret_cast<const T*>(from + c * stride);
    for (int64_t r = first_row; r < rows; ++r) to[r * pitch + c] = line[r];
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
template <typename T>
void transpose_typed(const std::byte* from, int64_t stride, T* to, int64_t pitch, int64_t rows,
                     int64_t cols) {
  transpose_edge(from, stride, to, pitch, 0, rows, 0, cols);
}
#else
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
void transpose_typed(const std::byte* from, int64_t stride, T* to, int64_t pitch, int64_t rows,
                     int64_t cols) {
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
        hn::Store(lines[i], d, to + (r + i) * pitch + c);
      }
    }
  }
  transpose_edge(from, stride, to, pitch, whole_rows, rows, 0, whole_cols);
  transpose_edge(from, stride, to, pitch, 0, rows, whole_cols, cols);
}
#endif

void transpose(const std::byte* from, int64_t stride, std::byte* to, int64_t pitch, int64_t rows,
               int64_t cols, int64_t element_size_bytes) {
  switch (element_size_bytes) {
    case 1:
      return transpose_typed(from, stride, reinterpret_cast<uint8_t*>(to), pitch, rows, cols);
    case 2:
      return transpose_typed(from, stride, reinterpret_cast<uint16_t*>(to), pitch, rows, cols);
    case 4:
      return transpose_typed(from, stride, reinterpret_cast<uint32_t*>(to), pitch, rows, cols);
    default:
      return transpose_typed(from, stride, reinterpret_cast<uint64_t*>(to), pitch, rows, cols);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {

HWY_EXPORT(transpose);

void transpose_elements(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_pitch,
                        int64_t rows, int64_t cols, int64_t element_size_bytes) {
  HWY_DYNAMIC_DISPATCH(transpose)(from, from_stride, to, to_pitch, rows, cols, element_size_bytes);
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
