// The host side of the matrix product (matmul.comp, matmul_bound.comp, matmul_subgroup.comp).
#pragma once

#include <array>
#include <cstdint>

#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// A matrix, or a matrix for each index of the batch. Strides count elements.
struct Matrix {
  uint64_t address = 0;               // The address of the first element.
  const bp_tensor* tensor = nullptr;  // Its tensor, or NULL if it cannot be bound.
  bp_dtype dtype = BP_F32;
  int64_t row_stride = 0, col_stride = 0;
  std::array<int64_t, BP_MAX_RANK> batch_strides{};  // The outermost axis first.
};

// y (m, n) = activation(a (m, k) b (k, n) + bias (n)).
struct Product {
  int64_t m = 0, n = 0, k = 0;
  uint32_t batch_ndim = 0;
  std::array<int64_t, BP_MAX_RANK> batch_shape{};
  Matrix a, b, y;
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;
  bool has_bias = false, has_preactivation = false;
  uint64_t bias = 0, preactivation = 0;  // Addresses.
  std::array<int64_t, BP_MAX_RANK> bias_batch_strides{};
  int64_t bias_stride = 0, preactivation_row_stride = 0, preactivation_col_stride = 0;
};

// The longest sum of a product that has a bias, an activation or a preactivation. A longer sum is
// cut into parts.
constexpr int64_t kMostOfProduct = 65536;

// Returns the bytes of scratch memory for the parts of a long sum.
uint64_t product_workspace(const Env& env, const Product& product);

// Submits a product. `scratch_range` is the workspace, in which product_workspace() bytes from
// `scratch` on are free.
bp_status submit_product(Launch& launch, const Product& product, const Ranges& reads,
                         const Ranges& writes, uint64_t scratch);

// The claimed dtypes of a, b and y.
constexpr bp_dtype kShaderProductDtypes[] = {
    BP_F32,  BP_F32, BP_F32, BP_F16, BP_F16,  BP_F16,  BP_BF16, BP_BF16,
    BP_BF16, BP_F16, BP_F16, BP_F32, BP_BF16, BP_BF16, BP_F32,
};

}  // namespace bp::vulkan
