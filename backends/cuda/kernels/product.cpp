#include "backends/cuda/kernels/product.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "backplane/shell/shape.hpp"

namespace bp::cuda {
namespace {

constexpr int64_t kMostBatches = INT32_MAX;
constexpr uint64_t kLibraryAlignment = 16;

// Returns whether the matrix has dense rows or dense columns. Sets the strides of single rows and
// columns to those of a dense matrix.
bool normalize_strides(ProductOperand& o) {
  if (o.cols == 1) o.col_stride = 1;
  if (o.rows == 1) o.row_stride = o.col_stride == 1 ? o.cols : 1;
  return (o.col_stride == 1 && o.row_stride >= o.cols) ||
         (o.row_stride == 1 && o.col_stride >= o.rows);
}

// Returns the columns of `o`, or its rows as columns, and whether they were rows.
std::pair<LtMatrix, bool> stored(const ProductOperand& o, int64_t batch_stride) {
  if (o.col_stride == 1) return {{o.cols, o.rows, o.row_stride, batch_stride}, true};
  return {{o.rows, o.cols, o.col_stride, batch_stride}, false};
}

int64_t last_batch_stride(const Product& p, const ProductOperand& o) {
  return p.batch_ndim == 0 ? 0 : o.batch_strides[p.batch_ndim - 1];
}

// Returns whether the last batch axis can be the batch of the library.
bool may_batch(const Product& p) {
  if (p.batch_ndim == 0 || p.batch[p.batch_ndim - 1] > kMostBatches) return false;
  return last_batch_stride(p, p.a) >= 0 && last_batch_stride(p, p.b) >= 0 &&
         last_batch_stride(p, p.y) > 0;
}

}  // namespace

bp_reason refuse_library_product(const Product& product) {
  Product p = product;
  if (!is_lt_type(p.a.dtype, p.y.dtype) || p.a.dtype != p.b.dtype) {
    return "cuBLASLt does not mix these dtypes";
  }
  if (p.is_empty() || p.a.cols == 0) return "there are no products";
  // The sums go where the preactivation lies.
  ProductOperand& sums = p.has_preactivation ? p.preactivation : p.y;
  if (!normalize_strides(p.a) || !normalize_strides(p.b) || !normalize_strides(sums)) {
    return "a matrix has neither dense rows nor dense columns";
  }
  if (p.has_bias && sums.col_stride != 1) return "with a bias, y has to have dense rows";
  return nullptr;
}

LibraryProduct library_product(const Product& product, bool allows_tf32, bool is_aligned) {
  Product p = product;
  if (p.has_preactivation) p.y = p.preactivation;
  normalize_strides(p.a);
  normalize_strides(p.b);
  normalize_strides(p.y);
  LibraryProduct result;
  // The library stores columns. If y has dense rows, they are the dense columns of y^T = b^T a^T.
  // If y has dense columns, the library computes y = a b.
  result.is_by_columns = p.y.col_stride != 1;
  const ProductOperand &first = result.is_by_columns ? p.a : p.b,
                       &second = result.is_by_columns ? p.b : p.a;
  LtProblem& lt = result.problem;
  lt.input = p.a.dtype;
  lt.output = p.y.dtype;
  lt.allows_tf32 = allows_tf32;
  lt.has_bias = p.has_bias;
  lt.is_aligned = is_aligned;
  const bool is_batched = may_batch(p);
  result.loop_ndim = p.batch_ndim - (is_batched ? 1 : 0);
  if (is_batched) lt.batch = p.batch[p.batch_ndim - 1];
  const auto stride_of = [&](const ProductOperand& o) {
    return is_batched ? last_batch_stride(p, o) : 0;
  };
  const auto [a, is_first_by_rows] = stored(first, stride_of(first));
  const auto [b, is_second_by_rows] = stored(second, stride_of(second));
  lt.a = a;
  lt.b = b;
  lt.d = stored(p.y, stride_of(p.y)).first;
  // b^T a^T needs transposed factors, and rows that are read as columns are already transposed.
  lt.transposes_a = result.is_by_columns ? is_first_by_rows : !is_first_by_rows;
  lt.transposes_b = result.is_by_columns ? is_second_by_rows : !is_second_by_rows;
  return result;
}

bool is_aligned(const Product& p) {
  const ProductOperand& sums = p.has_preactivation ? p.preactivation : p.y;
  for (const ProductOperand* o : {&p.a, &p.b, &sums}) {
    const auto item = static_cast<uint64_t>(dtype_size_bytes(o->dtype));
    if (reinterpret_cast<uint64_t>(o->address) % kLibraryAlignment != 0) return false;
    for (uint32_t i = 0; i < p.batch_ndim; ++i) {
      if (static_cast<uint64_t>(o->batch_strides[i]) * item % kLibraryAlignment != 0) return false;
    }
  }
  return true;
}

}  // namespace bp::cuda
