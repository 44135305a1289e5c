// Recorded calls: what they keep, and the way from the engine back to Python.
#pragma once

#include <span>

#include "backplane/runtime/autograd.hpp"
#include "binding.hpp"

namespace bp::python {

// What is kept of a tensor whose elements no gradient reads.
struct Facts {
  explicit Facts(const Tensor& tensor) : dtype(tensor.dtype()), ndim(tensor.shape().size()) {
    for (size_t i = 0; i < ndim; ++i) shape[i] = tensor.shape()[i];
  }

  bp_dtype dtype;
  size_t ndim;
  int64_t shape[BP_MAX_RANK];
};

// Returns `output` as the result of an op on `inputs`. For its gradient the engine calls
// backplane._autograd.gradients(*arguments, gradient), which returns the gradients of the inputs.
Tensor record_call(const char* name, std::span<const Tensor> inputs, const Tensor& output,
                   nb::tuple arguments);

}  // namespace bp::python
