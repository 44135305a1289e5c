// Which dtype holds the values of two dtypes: the rules of the runtime's functions.
#pragma once

#include "backplane/host.h"

namespace bp::python {

bool is_float(bp_dtype dtype);

// Returns 0 if no dtype holds both.
bp_dtype promote(bp_dtype a, bp_dtype b);

// A number of Python takes the dtype of the tensor beside it, unless that cannot hold its kind.
bp_dtype promote_scalar(bp_dtype tensor, const bp_scalar& scalar);

}  // namespace bp::python
