// Products of many small matrices of f32. A tile of y stays in registers while the depth is walked,
// and the next rows of b are read as vectors as they lie. Nothing is copied.
//
//   y (4 rows, 2 vectors) += a (4 rows, k) * b (k, 2 vectors)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/small_products.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product.hpp"
#include "backends/host_kernels/product_batch.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct SmallProduct {
  const float *a, *b;
  float* y;
  int64_t rows, depth;
  int64_t a_row, a_col, b_row, y_row;  // The strides, in elements. Columns of b and y are dense.
};

// Computes kRows rows from `row` on, and kVectors vectors of columns from `col` on.
template <int kRows, int kVectors, class D>
HWY_INLINE void compute_tile(D d, const SmallProduct& p, int64_t row, int64_t col) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sums[kRows][kVectors];
  for (auto& of_row : sums) {
    for (auto& sum : of_row) sum = hn::Zero(d);
  }
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + col;
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_col, b += p.b_row) {
    hn::Vec<D> of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) of_b[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto of_a = hn::Set(d, a[r * p.a_row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(of_a, of_b[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* const to = p.y + (row + r) * p.y_row + col;
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, to + v * lanes);
  }
}

// Computes all rows of kVectors vectors of columns.
template <int kVectors, class D>
HWY_INLINE void compute_columns(D d, const SmallProduct& p, int64_t col) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) compute_tile<kRows, kVectors>(d, p, row, col);
  for (; row < p.rows; ++row) compute_tile<1, kVectors>(d, p, row, col);
}

void compute_product(const SmallProduct& p, int64_t cols) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)),
             some_lanes = static_cast<int64_t>(hn::Lanes(four));
  int64_t col = 0;
  for (; col + 2 * lanes <= cols; col += 2 * lanes) compute_columns<2>(d, p, col);
  for (; col + lanes <= cols; col += lanes) compute_columns<1>(d, p, col);
  for (; col + some_lanes <= cols; col += some_lanes) compute_columns<1>(four, p, col);
  for (; col < cols; ++col) compute_columns<1>(one, p, col);
}

void compute_products(const Product& p, int64_t begin, int64_t end) {
  const auto at = [](const ProductOperand& o, int64_t offset) {
    return reinterpret_cast<float*>(o.address) + offset;
  };
  for_each_batch(p, p.batch_ndim, begin, end, [&](const BatchOffsets& offsets) HWY_ATTR {
    const SmallProduct product = {at(p.a, offsets.a), at(p.b, offsets.b), at(p.y, offsets.y),
                                  p.y.rows,           p.a.cols,           p.a.row_stride,
                                  p.a.col_stride,     p.b.row_stride,     p.y.row_stride};
    compute_product(product, p.y.cols);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(compute_products);

}  // namespace

bool are_small_products(const Product& p) {
  constexpr int64_t kFewest = 16, kMostSteps = int64_t{32} * 32 * 32, kMostDepth = 256;
  return p.a.dtype == BP_F32 && p.b.dtype == BP_F32 && p.y.dtype == BP_F32 && !p.has_bias &&
         p.batch_count() >= kFewest && p.y.rows * p.y.cols * p.a.cols <= kMostSteps &&
         p.a.cols <= kMostDepth && (p.b.cols == 1 || p.b.col_stride == 1) &&
         (p.y.cols == 1 || p.y.col_stride == 1);
}

void run_small_products(const Product& p, int thread_count) {
  constexpr int64_t kGrainSteps = 1 << 16;
  const int64_t steps = std::max<int64_t>(1, p.y.rows * p.y.cols * p.a.cols);
  const auto compute = HWY_DYNAMIC_DISPATCH(compute_products);
  parallel_for(thread_count, p.batch_count(), std::max<int64_t>(1, kGrainSteps / steps),
               [&](int64_t begin, int64_t end) { compute(p, begin, end); });
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
