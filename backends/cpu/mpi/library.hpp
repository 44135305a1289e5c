// Finds the module that has the functions of api.hpp.
#pragma once

#include "backends/cpu/mpi/api.hpp"

namespace bp::mpi {

// Loads the module once, and returns its functions. The module stays loaded, because MPI cannot be
// unloaded. Throws StatusError of BP_UNSUPPORTED, whose text begins with `call` and says what to
// install, if the module or MPI is missing.
const Api& load_api(const char* call);

// Throws StatusError of `status` if `error` is not 0. The text begins with `what`.
void check(const Api& api, int error, bp_status status, const char* what);

}  // namespace bp::mpi
