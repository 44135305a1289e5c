#include "backends/host_kernels/transpose.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/transpose.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The functions below take a Transposition by value, because stores through bytes might change an
// object behind a reference.

// Copies the elements from (first_row, first_col) on, one by one.
template <typename T>
void transpose_edge(const Transposition t, int64_t first_row, int64_t first_col) {
  T* const to = reinterpret_cast<T*>(t.to);
  for (int64_t c = first_col; c < t.cols; ++c) {
    const T* const line = reinterpret_cast<const T*>(t.from + c * t.from_stride);
    for (int64_t r = first_row; r < t.rows; ++r) to[r * t.to_pitch + c] = line[r];
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
template <typename T>
void transpose_typed(const Transposition t) {
  transpose_edge<T>(t, 0, 0);
}
#else
// Loads elements of line `at` and, in a second block, of the line kSide lines further.
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
void transpose_typed(const Transposition t) {
  const hn::CappedTag<T, 32 / sizeof(T)> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, 32 / sizeof(T)>()));
  constexpr int64_t kSide = 16 / sizeof(T);
  T* const to = reinterpret_cast<T*>(t.to);
  const int64_t whole_rows = t.rows / kSide * kSide, whole_cols = t.cols / kLanes * kLanes;
  for (int64_t c = 0; c < whole_cols; c += kLanes) {
    for (int64_t r = 0; r < whole_rows; r += kSide) {
      hn::Vec<decltype(d)> lines[kSide];
      const std::byte* const at = t.from + c * t.from_stride + r * static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < kSide; ++i) {
        lines[i] = load_blocks<decltype(d), T>(d, at + i * t.from_stride, t.from_stride);
      }
      transpose_blocks(d, lines);
      for (int64_t i = 0; i < kSide; ++i) {
        hn::Store(lines[i], d, to + (r + i) * t.to_pitch + c);
      }
    }
  }
  transpose_edge<T>(t, whole_rows, 0);
  Transposition beside = t;
  beside.rows = whole_rows;
  transpose_edge<T>(beside, 0, whole_cols);
}
#endif

void transpose(const Transposition& t, int64_t element_size_bytes) {
  switch (element_size_bytes) {
    case 1:
      return transpose_typed<uint8_t>(t);
    case 2:
      return transpose_typed<uint16_t>(t);
    case 4:
      return transpose_typed<uint32_t>(t);
    default:
      return transpose_typed<uint64_t>(t);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {

HWY_EXPORT(transpose);

void transpose_elements(const Transposition& t, int64_t element_size_bytes) {
  HWY_DYNAMIC_DISPATCH(transpose)(t, element_size_bytes);
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
