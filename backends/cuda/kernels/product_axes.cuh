// The axes of the batch of a product, for the kernels that compute products themselves. Sources
// without device code include product.hpp alone.
#pragma once

#include "backends/cuda/kernels/product.hpp"
#include "backends/cuda/kernels/strides.cuh"

namespace bp::cuda {

// The batch of a product, with the strides of its operands in this order.
constexpr int kAxesA = 0, kAxesB = 1, kAxesY = 2, kAxesPreactivation = 3;
Axes<4> batch_axes(const Product& product);

}  // namespace bp::cuda
