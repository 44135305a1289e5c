// What all runs of the recorded graph share.
#pragma once

#include <functional>

#include "runtime/autograd/node.hpp"

namespace bp::detail {

// Adds `gradient` to `sum`, which may be empty.
void add_to(Tensor& sum, Tensor&& gradient);

// Adds `gradient` to grad() of `leaf`. The leaf keeps a first gradient as it is if nobody else sees
// it or a graph is made of it, else as a contiguous copy. Later gradients are added in place, so
// that holders of grad() see them, unless a graph is made of the sum.
void accumulate(TensorImpl& leaf, Tensor&& gradient);

// Runs `body`, and then the functions that it gave to after_backward().
void run_with_end_calls(const std::function<void()>& body);

}  // namespace bp::detail
