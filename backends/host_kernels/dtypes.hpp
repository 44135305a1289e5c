// Converts a dtype to the C++ type of its elements on the host. The lists of dtypes are in the
// shell.
#pragma once

#include "backplane/base.h"
#include "backplane/shell/dtypes.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp::kernels {

// Calls fn(T{}), where T are the elements of a dtype of kFloatDtypes. Throws StatusError of
// BP_UNSUPPORTED if `dtype` is none of them.
template <typename Fn>
auto with_float(bp_dtype dtype, const Fn& fn) {
  return Elements<Float16, BFloat16>::with_float(dtype, fn);
}

// Calls fn(T{}) in the same way for a dtype of kIntegerDtypes.
template <typename Fn>
auto with_integer(bp_dtype dtype, const Fn& fn) {
  return Elements<Float16, BFloat16>::with_integer(dtype, fn);
}

// Calls fn(T{}) in the same way for a dtype of kNumberDtypes.
template <typename Fn>
auto with_number(bp_dtype dtype, const Fn& fn) {
  return Elements<Float16, BFloat16>::with_number(dtype, fn);
}

// Calls fn(T{}) in the same way for a dtype of kAnyDtypes. A bool is a byte.
template <typename Fn>
auto with_any(bp_dtype dtype, const Fn& fn) {
  return Elements<Float16, BFloat16>::with_any(dtype, fn);
}

}  // namespace bp::kernels
