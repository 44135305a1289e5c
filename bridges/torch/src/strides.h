// The strides that PyTorch's CPU gives the result of an elementwise operator.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace bpt {

// The strides of a result of this shape without gaps, whose axes are in the order of those of the
// inputs: the first input that settles the order of two axes decides. Inputs have been expanded to
// the shape, and the axes that were broadcast have the stride 0, which settles nothing; others and
// undefined ones are left out. `is_broadcast` says that not all operands had this shape, numbers
// among them. Nothing is returned if the result is contiguous.
std::optional<at::DimVector> strides_of_result(at::IntArrayRef shape, at::TensorList inputs,
                                               bool is_broadcast);

}  // namespace bpt
