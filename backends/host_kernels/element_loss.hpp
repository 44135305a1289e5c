// The row functions of a loss between the elements of two tensors (element_loss.cpp).
#pragma once

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// The operands of `each` are y and those of `sum`, which are x, target, and what the loss has
// beside them. If a loss has a positive weight and a weight, `each` leaves out the weight and gives
// losses in the compute type, which `weigh` multiplies by the weight.
struct LossRows {
  RowFunction* each = nullptr;
  RowFunction* sum = nullptr;  // Its context is a BlockSum.
  RowFunction* weigh = nullptr;
};

}  // namespace bp::kernels
