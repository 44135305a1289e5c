// The dtypes that kernels claim, each list with the way from a dtype to the type of its elements:
// the only one there is, so that no kernel takes a dtype for another.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/base.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp::kernels {

constexpr bp_dtype kFloatDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16};
constexpr bp_dtype kNumberDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64};
// Everything that an element can be moved as.
constexpr bp_dtype kAnyDtypes[] = {BP_BOOL, BP_U8,  BP_I8,   BP_I16, BP_I32,
                                   BP_I64,  BP_F16, BP_BF16, BP_F32, BP_F64};

// Calls fn(T{}), where T are the elements of a dtype of kFloatDtypes. Throws StatusError of
// BP_UNSUPPORTED if `dtype` is none of them.
template <typename Fn>
auto with_float(bp_dtype dtype, const Fn& fn) {
  switch (dtype) {
    case BP_F16:
      return fn(Float16{});
    case BP_BF16:
      return fn(BFloat16{});
    case BP_F32:
      return fn(float{});
    case BP_F64:
      return fn(double{});
    default:
      throw StatusError(BP_UNSUPPORTED,
                        "the kernel has no code for dtype " + std::to_string(dtype));
  }
}

// The same for kNumberDtypes.
template <typename Fn>
auto with_number(bp_dtype dtype, const Fn& fn) {
  if (dtype == BP_I32) return fn(int32_t{});
  if (dtype == BP_I64) return fn(int64_t{});
  return with_float(dtype, fn);
}

// The same for kAnyDtypes; a bool is a byte.
template <typename Fn>
auto with_any(bp_dtype dtype, const Fn& fn) {
  if (dtype == BP_BOOL || dtype == BP_U8) return fn(uint8_t{});
  if (dtype == BP_I8) return fn(int8_t{});
  if (dtype == BP_I16) return fn(int16_t{});
  return with_number(dtype, fn);
}

}  // namespace bp::kernels
