// The buffer protocol of tensors.
#pragma once

#include "binding.hpp"

namespace bp::python {

extern PyType_Slot buffer_slots[];

// Returns the format of the struct module for a dtype, or NULL if it has none.
const char* format_of(bp_dtype dtype);

}  // namespace bp::python
