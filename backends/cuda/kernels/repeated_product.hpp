// A product that a launch runs several times, on other addresses each time. cuBLASLt computes it
// where it serves, without TF32, else the tiles of product_tiles.cu do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/product_library.hpp"

namespace bp::cuda {

// Returns a matrix with dense rows.
ProductOperand dense_matrix(std::byte* address, bp_dtype dtype, int64_t rows, int64_t cols);
// Returns the matrix of a tensor of two axes.
ProductOperand matrix_of(const bp_tensor& tensor);
// Returns `count` rows from row `first` on.
ProductOperand rows_of(ProductOperand matrix, int64_t first, int64_t count);
// Returns `count` columns from column `first` on.
ProductOperand columns_of(const ProductOperand& matrix, int64_t first, int64_t count);
ProductOperand transposed(ProductOperand matrix);

// Returns the product y = a b, without a batch.
Product plain_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& y);

class RepeatedProduct {
 public:
  // Runs nothing.
  RepeatedProduct() = default;
  // Chooses algorithms. It does not read the addresses of `shape`. The device's context is current.
  // Throws StatusError.
  RepeatedProduct(const Product& shape, const Env& env);

  uint64_t workspace_size_bytes() const;

  // Submits a product of the same shape and strides. The workspace begins at a multiple of 256
  // bytes.
  bp_status launch(const Product& product, std::byte* workspace, Launch& launch) const;

 private:
  ChosenProduct aligned_, other_;  // Without a plan, the tiles compute.
};

}  // namespace bp::cuda
