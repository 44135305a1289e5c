// A panel of b is packed once for all rows of a, which is read as it lies. Its last rows are copied
// if they do not fill a tile.
#include "backends/host_kernels/gemm_amx.hpp"

#include <algorithm>

#include "backends/host_kernels/amx.hpp"
#include "backplane/shell/narrow.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/gemm_amx.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// Lays the rows of b side by side in pairs. Columns from `count` on are 0.
void pack_panel(const uint16_t* b, int64_t stride, int64_t depth, int64_t count, uint32_t* to) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> narrow_d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  uint16_t padded[2][kAmxColumns] = {};
  for (int64_t k = 0; k < depth; k += 2, b += 2 * stride, to += kAmxColumns) {
    const uint16_t *even = b, *odd = b + stride;
    if (count < kAmxColumns) {
      std::copy_n(even, count, padded[0]);
      std::copy_n(odd, count, padded[1]);
      even = padded[0];
      odd = padded[1];
    }
    for (int64_t i = 0; i < kAmxColumns; i += lanes) {
      const auto lower = hn::PromoteTo(d, hn::LoadU(narrow_d, even + i));
      const auto upper = hn::PromoteTo(d, hn::LoadU(narrow_d, odd + i));
      hn::StoreU(hn::Or(lower, hn::ShiftLeft<16>(upper)), d, to + i);
    }
  }
}

void run_panel(const Gemm& gemm, int64_t panel, std::byte* memory) {
  const int64_t first = panel * kAmxColumns, depth = gemm.a.cols, rows = gemm.a.rows;
  const int64_t count = std::min(kAmxColumns, gemm.b.cols - first);
  auto* const pairs = reinterpret_cast<uint32_t*>(memory);
  auto* const sums = reinterpret_cast<float*>(pairs + depth / 2 * kAmxColumns);
  auto* const last = reinterpret_cast<uint16_t*>(sums + kAmxSumRows * kAmxColumns);
  pack_panel(reinterpret_cast<const uint16_t*>(gemm.b.at(0, first)), gemm.b.row_stride, depth,
             count, pairs);
  const AmxScope scope;
  for (int64_t row = 0, n = 0; row < rows; row += n) {
    const auto* a = reinterpret_cast<const uint16_t*>(gemm.a.at(row, 0));
    int64_t stride = gemm.a.row_stride;
    n = std::min(kAmxSumRows, (rows - row) / kAmxRows * kAmxRows);
    int64_t padded = n;
    if (n == 0) {
      n = rows - row;
      padded = kAmxRows;
      for (int64_t r = 0; r < n; ++r) std::copy_n(a + r * stride, depth, last + r * depth);
      std::fill(last + n * depth, last + kAmxRows * depth, uint16_t{0});
      a = last;
      stride = depth;
    }
    multiply_amx(a, stride, pairs, padded, depth, sums);
    for (int64_t r = 0; r < n; ++r) {
      store_line(sums + r * kAmxColumns, count,
                 reinterpret_cast<BFloat16*>(gemm.y.at(row + r, first)), gemm.y.col_stride);
    }
  }
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_panel);

}  // namespace

bool takes_amx(const Gemm& gemm) {
  const bool is_plain = gemm.bias.data == nullptr && !gemm.accumulates &&
                        gemm.activation == BP_LINEAR_ACTIVATION_NONE;
  const bool is_bf16 =
      gemm.a.dtype == BP_BF16 && gemm.b.dtype == BP_BF16 && gemm.y.dtype == BP_BF16;
  return is_plain && is_bf16 && has_amx_bf16() && gemm.a.cols > 0 && gemm.a.cols % kAmxDepth == 0 &&
         gemm.a.col_stride == 1 && gemm.b.col_stride == 1;
}

uint64_t amx_panel_size_bytes(int64_t depth) {
  const int64_t words = depth / 2 * kAmxColumns + kAmxSumRows * kAmxColumns + kAmxRows * depth / 2;
  return static_cast<uint64_t>(words) * sizeof(uint32_t);
}

void run_amx_panel(const Gemm& gemm, int64_t panel, std::byte* memory) {
  HWY_DYNAMIC_DISPATCH(run_panel)(gemm, panel, memory);
}

}  // namespace bp::kernels
#endif
