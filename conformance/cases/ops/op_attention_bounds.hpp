// The bounds of attention, for sdpa and for paged_attention.
#pragma once

#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/attention.hpp"

namespace bp::conformance::attention {

// Returns the bounds of y and of lse by class R6. The operands have this dtype.
Bounds bounds_of(const reference::Attention<double>& a, bp_dtype dtype, const Numerics& numerics);

}  // namespace bp::conformance::attention
