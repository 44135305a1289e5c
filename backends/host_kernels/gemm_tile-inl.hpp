// Tiles of a matrix product. A tile is kTileRows x two vectors of y; its sums over the depth of
// packed panels (pack-inl.hpp) stay in registers, and are then stored.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_GEMM_TILE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_GEMM_TILE_INL_HPP
#undef BACKPLANE_CPU_GEMM_TILE_INL_HPP
#else
#define BACKPLANE_CPU_GEMM_TILE_INL_HPP
#endif

#include <hwy/cache_control.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/host_kernels/activation-inl.hpp"
#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/lines-inl.hpp"

#ifndef BACKPLANE_CPU_GEMM_TILE_LIMITS
#define BACKPLANE_CPU_GEMM_TILE_LIMITS
namespace bp::kernels {

template <typename Sum>
constexpr bp_dtype kSumDtype = sizeof(Sum) == 8 ? BP_F64 : BP_F32;

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

template <typename Sum>
using Tag = hn::CappedTag<Sum, 64 / sizeof(Sum)>;

// The accumulators, two vectors of b and one vector of a fill the registers.
constexpr int64_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 12 : HWY_TARGET <= HWY_AVX2 ? 6 : 4;
template <typename Sum>
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<Sum>()));
template <typename Sum>
constexpr int64_t kTileCols = 2 * kLanes<Sum>;

// The destination of a whole tile: `to` = the tile + `terms`, with rows `stride` elements apart. If
// `terms` is NULL, nothing is added. A streamed tile, whose rows begin at lines of the caches, is
// written past them.
template <typename Sum>
struct TilePlace {
  const Sum* terms;
  int64_t terms_stride;
  Sum* to;
  int64_t stride;
  bool is_streamed = false;
};

// Prefetches what the panels give kDepthAhead steps later. A panel of b is at least as large as the
// first-level cache, so each tile reads both panels from the second-level cache, and the hardware
// prefetches only a part of them. This prefetch makes f64 512^3 7 % faster, and bf16 1024^3 4 %.
template <int64_t kCount, typename Sum>
HWY_INLINE void prefetch_rows(const Sum* panel) {
  constexpr int64_t kDepthAhead = 20;
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(Sum));
  for (int64_t i = 0; i < kCount; i += kLine) hwy::Prefetch(panel + kDepthAhead * kCount + i);
}

// Multiplies a panel of a (depth, kTileRows) by a panel of b (depth, kTileCols). It is a separate
// function without loops over the rows, so that its sums stay in registers. When it was inlined,
// the loop counter was in memory. With loops over the rows, the sums went through memory after the
// loop.
template <typename Sum, size_t... kRow>
HWY_NOINLINE void multiply_tile(const Sum* HWY_RESTRICT a, const Sum* HWY_RESTRICT b, int64_t depth,
                                const TilePlace<Sum>& place, std::index_sequence<kRow...>) {
  const Tag<Sum> d;
  using Vector = hn::Vec<Tag<Sum>>;
  Vector left[] = {(static_cast<void>(kRow), hn::Zero(d))...};
  Vector right[] = {(static_cast<void>(kRow), hn::Zero(d))...};
  Vector value;
  for (int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileCols<Sum>) {
    prefetch_rows<kTileRows>(a);
    prefetch_rows<kTileCols<Sum>>(b);
    const Vector b0 = hn::Load(d, b);
    const Vector b1 = hn::Load(d, b + kLanes<Sum>);
    ((value = hn::Set(d, a[kRow]), left[kRow] = hn::MulAdd(value, b0, left[kRow]),
      right[kRow] = hn::MulAdd(value, b1, right[kRow])),
     ...);
  }
  if (place.terms != nullptr) {
    const Sum* terms = place.terms;
    ((left[kRow] = hn::Add(left[kRow], hn::LoadU(d, terms)),
      right[kRow] = hn::Add(right[kRow], hn::LoadU(d, terms + kLanes<Sum>)),
      terms += place.terms_stride),
     ...);
  }
  Sum* to = place.to;
  if (place.is_streamed) {
    ((hn::Stream(left[kRow], d, to), hn::Stream(right[kRow], d, to + kLanes<Sum>),
      to += place.stride),
     ...);
    return;
  }
  ((hn::StoreU(left[kRow], d, to), hn::StoreU(right[kRow], d, to + kLanes<Sum>),
    to += place.stride),
   ...);
}

template <typename Sum>
void add_line(const Matrix& from, int64_t row, int64_t count, Sum* HWY_RESTRICT line) {
  const Tag<Sum> d;
  HWY_ALIGN Sum gathered[kTileColsLimit];
  const Sum* terms = reinterpret_cast<const Sum*>(from.at(row, 0));
  if (from.dtype != kSumDtype<Sum> || from.col_stride != 1 || count != kTileCols<Sum>) {
    with_element_of<Sum>(from.dtype, [&]<typename T>(T) {
      load_line(reinterpret_cast<const T*>(from.at(row, 0)), from.col_stride, count, gathered);
    });
    terms = gathered;
  }
  for (int64_t i = 0; i < kTileCols<Sum>; i += kLanes<Sum>) {
    hn::Store(hn::Add(hn::Load(d, line + i), hn::LoadU(d, terms + i)), d, line + i);
  }
}

// The destination of the sums of a tile. All three matrices have the extents of the tile.
struct Result {
  Matrix sums;  // Sums of earlier depth blocks; absent in the first.
  Matrix bias;  // Present in the last depth block alone.
  Matrix y;     // The result in the last depth block, else sums.
  Matrix preactivation;
  uint32_t activation;
  bool is_streamed = false;  // Whole tiles of y are written past the caches.

  Result part(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    return {sums.part(row, rows, col, cols),
            bias.part(row, rows, col, cols),
            y.part(row, rows, col, cols),
            preactivation.part(row, rows, col, cols),
            activation,
            is_streamed};
  }
};

template <typename Sum>
void store_row(const Sum* line, const Matrix& to, int64_t row) {
  with_element_of<Sum>(to.dtype, [&]<typename T>(T) {
    store_line(line, to.cols, reinterpret_cast<T*>(to.at(row, 0)), to.col_stride);
  });
}

// Prefetches the result while the tile is computed, because the hardware does not prefetch the long
// strides of y.
HWY_INLINE void prefetch_tile(const Result& result) {
  const Matrix& first = result.sums.data != nullptr ? result.sums : result.y;
  for (int64_t r = 0; r < first.rows; ++r) {
    hwy::Prefetch(first.at(r, 0));
    hwy::Prefetch(first.at(r, first.cols - 1));
  }
}

template <typename Sum>
void store_tile(Sum* tile, const Result& result) {
  const Matrix& y = result.y;
  for (int64_t r = 0; r < y.rows; ++r, tile += kTileCols<Sum>) {
    if (result.bias.data != nullptr) add_line(result.bias, r, y.cols, tile);
    if (result.preactivation.data != nullptr) store_row(tile, result.preactivation, r);
    activate_line(result.activation, y.cols, tile);
    store_row(tile, y, r);
  }
}

// Returns whether vectors of sums can be read from and written to all of `m`.
template <typename Sum>
bool holds_tile(const Matrix& m) {
  return m.dtype == kSumDtype<Sum> && m.col_stride == 1 && m.rows == kTileRows &&
         m.cols == kTileCols<Sum>;
}

// Computes a tile of the result. A whole tile whose elements have the dtype of the sums is added
// and stored from registers.
template <typename Sum>
void multiply_part(const Sum* a, const Sum* b, int64_t depth, const Result& result) {
  HWY_ALIGN Sum tile[kTileRows * kTileCols<Sum>];
  TilePlace<Sum> place = {nullptr, 0, tile, kTileCols<Sum>};
  const bool adds_here = result.sums.data != nullptr && holds_tile<Sum>(result.sums);
  if (adds_here) {
    place.terms = reinterpret_cast<const Sum*>(result.sums.data);
    place.terms_stride = result.sums.row_stride;
  }
  const bool is_last_step = result.bias.data == nullptr && result.preactivation.data == nullptr &&
                            result.activation == BP_LINEAR_ACTIVATION_NONE;
  const bool adds_later = result.sums.data != nullptr && !adds_here;
  const bool stores_here = is_last_step && !adds_later && holds_tile<Sum>(result.y);
  if (stores_here) {
    place.to = reinterpret_cast<Sum*>(result.y.data);
    place.stride = result.y.row_stride;
    place.is_streamed = result.is_streamed;
  }
  multiply_tile(a, b, depth, place, std::make_index_sequence<kTileRows>());
  if (stores_here) return;
  for (int64_t r = 0; adds_later && r < result.y.rows; ++r) {
    add_line(result.sums, r, result.y.cols, tile + r * kTileCols<Sum>);
  }
  store_tile(tile, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_GEMM_TILE_INL_HPP
