// Ops whose result has as many rows as values say. The ops nonzero() and masked_select() give the
// most rows that may be needed, and a count, and never wait; so a graph may capture them. The
// functions here give the used rows alone.
//
//   Blocking   Each function waits for the count, and so for the work in front of it.
#pragma once

#include "backplane/runtime/tensor.hpp"

namespace bp {

// Returns the first rows of `rows`, as many as `count`, a tensor of one i64, says. It is a view.
Tensor used_rows(const Tensor& rows, const Tensor& count);

// Returns the places (elements, axes) of the elements of x that differ from 0.
Tensor exact_nonzero(const Tensor& x);

// Returns the elements of x where `mask` is true, in row-major order.
Tensor exact_masked_select(const Tensor& x, const Tensor& mask);

}  // namespace bp
