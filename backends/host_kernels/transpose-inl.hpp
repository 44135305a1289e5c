// Transposes squares of elements in registers.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_TRANSPOSE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_TRANSPOSE_INL_HPP
#undef BACKPLANE_CPU_TRANSPOSE_INL_HPP
#else
#define BACKPLANE_CPU_TRANSPOSE_INL_HPP
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
// Transposes kSide lines of 16 bytes in each 16-byte block of the vectors, by log2(kSide) perfect
// shuffles of the lines.
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

// Turns the elements [at, at + 16 / sizeof(T)) of kBlocks times as many lines into rows of `to`.
template <int kBlocks, typename T>
HWY_INLINE void transpose_lines(const T* const* lines, int64_t at, T* HWY_RESTRICT to,
                                int64_t pitch) {
  constexpr size_t kSide = 16 / sizeof(T);
  const hn::CappedTag<T, kSide> half;
  if constexpr (kBlocks == 2 && HWY_TARGET <= HWY_AVX2) {
    const hn::CappedTag<T, 2 * kSide> d;
    hn::Vec<decltype(d)> rows[kSide];
    for (size_t i = 0; i < kSide; ++i) {
      rows[i] =
          hn::Combine(d, hn::LoadU(half, lines[kSide + i] + at), hn::LoadU(half, lines[i] + at));
    }
    transpose_blocks(d, rows);
    for (size_t i = 0; i < kSide; ++i) {
      hn::StoreU(rows[i], d, to + static_cast<int64_t>(i) * pitch);
    }
  } else {
    for (int block = 0; block < kBlocks; ++block, lines += kSide, to += kSide) {
      hn::Vec<decltype(half)> rows[kSide];
      for (size_t i = 0; i < kSide; ++i) rows[i] = hn::LoadU(half, lines[i] + at);
      transpose_blocks(half, rows);
      for (size_t i = 0; i < kSide; ++i) {
        hn::StoreU(rows[i], half, to + static_cast<int64_t>(i) * pitch);
      }
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_TRANSPOSE_INL_HPP
