// Lists of dtypes for the claims of kernels, and the conversion of a dtype to the C++ type of its
// elements. There is no other such conversion, so that no kernel takes one dtype for another.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backplane/base.h"
#include "backplane/shell/boundary.hpp"

namespace bp {

constexpr bp_dtype kFloatDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16};
constexpr bp_dtype kNumberDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64};
constexpr bp_dtype kIntegerDtypes[] = {BP_I32, BP_I64};
// All dtypes whose elements kernels can move.
constexpr bp_dtype kAnyDtypes[] = {BP_BOOL, BP_U8,  BP_I8,   BP_I16, BP_I32,
                                   BP_I64,  BP_F16, BP_BF16, BP_F32, BP_F64};

constexpr bp_dtype kIndexDtypes[] = {BP_I64, BP_I32};

// Returns acc(x) of the operators for the dtype of x.
constexpr bp_dtype acc_dtype(bp_dtype x) {
  return x == BP_F16 || x == BP_BF16 ? bp_dtype{BP_F32} : x;
}

// Returns the rows of dtypes that claim each dtype of `first` with each of `second`.
template <size_t kFirst, size_t kSecond>
constexpr std::array<bp_dtype, 2 * kFirst * kSecond> pairs_of(const bp_dtype (&first)[kFirst],
                                                              const bp_dtype (&second)[kSecond]) {
  std::array<bp_dtype, 2 * kFirst * kSecond> rows{};
  size_t next = 0;
  for (const bp_dtype a : first) {
    for (const bp_dtype b : second) {
      rows[next++] = a;
      rows[next++] = b;
    }
  }
  return rows;
}

// Returns the rows of dtypes that claim each of `dtypes` with indices of i64 and of i32.
template <size_t kCount>
constexpr std::array<bp_dtype, 4 * kCount> with_indices(const bp_dtype (&dtypes)[kCount]) {
  return pairs_of(dtypes, kIndexDtypes);
}

// Rates of training steps. The rows claim each float with a rate in f64 or f32.
constexpr bp_dtype kRateDtypes[] = {BP_F64, BP_F32};
constexpr auto kStepDtypes = pairs_of(kFloatDtypes, kRateDtypes);

// Refuses a dtype that a kernel has no code for.
[[noreturn]] inline void refuse_dtype(bp_dtype dtype) {
  throw StatusError(BP_UNSUPPORTED, "the kernel has no code for dtype " + std::to_string(dtype));
}

// Returns `dtype`, which must be one of `dtypes`. Throws StatusError of BP_UNSUPPORTED if it is
// not, because device code would take it for another dtype.
template <size_t kCount>
bp_dtype one_of(const bp_dtype (&dtypes)[kCount], bp_dtype dtype) {
  if (std::find(dtypes, dtypes + kCount, dtype) == dtypes + kCount) refuse_dtype(dtype);
  return dtype;
}

// Calls a function with an element of a dtype. `Half` and `Brain` are the types of the backend for
// f16 and bf16; a bool is a byte.
template <typename Half, typename Brain>
struct Elements {
  // Calls fn(T{}), where T are the elements of a dtype of kFloatDtypes. Throws StatusError of
  // BP_UNSUPPORTED if `dtype` is none of them.
  template <typename Fn>
  static auto with_float(bp_dtype dtype, const Fn& fn) {
    switch (dtype) {
      case BP_F16:
        return fn(Half{});
      case BP_BF16:
        return fn(Brain{});
      case BP_F32:
        return fn(float{});
      case BP_F64:
        return fn(double{});
      default:
        refuse_dtype(dtype);
    }
  }

  // Calls fn(T{}) as with_float() does, for the dtypes of kIntegerDtypes.
  template <typename Fn>
  static auto with_integer(bp_dtype dtype, const Fn& fn) {
    if (dtype == BP_I32) return fn(int32_t{});
    if (dtype == BP_I64) return fn(int64_t{});
    refuse_dtype(dtype);
  }

  // Calls fn(T{}) as with_float() does, for the dtypes of kNumberDtypes.
  template <typename Fn>
  static auto with_number(bp_dtype dtype, const Fn& fn) {
    if (dtype == BP_I32) return fn(int32_t{});
    if (dtype == BP_I64) return fn(int64_t{});
    return with_float(dtype, fn);
  }

  // Calls fn(T{}) as with_float() does, for the dtypes of kAnyDtypes.
  template <typename Fn>
  static auto with_any(bp_dtype dtype, const Fn& fn) {
    if (dtype == BP_BOOL || dtype == BP_U8) return fn(uint8_t{});
    if (dtype == BP_I8) return fn(int8_t{});
    if (dtype == BP_I16) return fn(int16_t{});
    return with_number(dtype, fn);
  }
};

}  // namespace bp
