#include "backends/cuda/kernels/repeated_product.hpp"

#include <algorithm>
#include <utility>

#include "backplane/shell/shape.hpp"

namespace bp::cuda {

ProductOperand dense_matrix(std::byte* address, bp_dtype dtype, int64_t rows, int64_t cols) {
  ProductOperand o;
  o.address = address;
  o.dtype = dtype;
  o.rows = rows;
  o.cols = cols;
  o.row_stride = cols;
  o.col_stride = 1;
  return o;
}

ProductOperand matrix_of(const bp_tensor& tensor) {
  ProductOperand o =
      dense_matrix(data<std::byte>(tensor), tensor.dtype, tensor.shape[0], tensor.shape[1]);
  o.row_stride = tensor.strides[0];
  o.col_stride = tensor.strides[1];
  return o;
}

ProductOperand rows_of(ProductOperand matrix, int64_t first, int64_t count) {
  if (matrix.address != nullptr)
    matrix.address += first * matrix.row_stride * dtype_size_bytes(matrix.dtype);
  matrix.rows = count;
  return matrix;
}

ProductOperand columns_of(const ProductOperand& matrix, int64_t first, int64_t count) {
  return transposed(rows_of(transposed(matrix), first, count));
}

ProductOperand transposed(ProductOperand matrix) {
  std::swap(matrix.rows, matrix.cols);
  std::swap(matrix.row_stride, matrix.col_stride);
  return matrix;
}

Product plain_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& y) {
  Product p;
  p.a = a;
  p.b = b;
  p.y = y;
  p.preactivation = y;
  p.preactivation.address = nullptr;
  return p;
}

RepeatedProduct::RepeatedProduct(const Product& shape, const Env& env) {
  if (refuse_library_product(shape) != nullptr) return;
  if (env.engines().lt(env.device()) == nullptr) return;
  aligned_ = choose_product(shape, false, true, env);
  other_ = choose_product(shape, false, false, env);
}

uint64_t RepeatedProduct::workspace_size_bytes() const {
  uint64_t size_bytes = 0;
  for (const ChosenProduct* chosen : {&aligned_, &other_}) {
    if (chosen->plan != nullptr) {
      size_bytes = std::max(size_bytes, chosen->plan->workspace_size_bytes);
    }
  }
  return size_bytes;
}

bp_status RepeatedProduct::launch(const Product& product, std::byte* workspace,
                                  Launch& launch) const {
  const ChosenProduct& chosen = is_aligned(product) ? aligned_ : other_;
  if (chosen.plan == nullptr) return launch_product_tiles(product, launch);
  LtAddresses at;
  at.workspace = workspace;
  return run_library_product(product, chosen, at, launch);
}

}  // namespace bp::cuda
