// What a row of a kernel table says of the kernel: its name, the op, and the dtypes that it claims.
// The make_kernel() of a backend adds the functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backplane/kernel.h"
#include "backplane/shell/dtypes.hpp"

namespace bp {

// Rows of dtypes. Each row has `width` dtypes, one for each free argument of the op.
struct DtypeRows {
  constexpr DtypeRows() = default;  // No dtype is free.
  template <size_t kCount>
  constexpr DtypeRows(const bp_dtype (&dtypes)[kCount], uint32_t each = 1)  // NOLINT: a list.
      : rows(dtypes), count(static_cast<uint32_t>(kCount) / each), width(each) {}
  template <size_t kCount>
  constexpr DtypeRows(const std::array<bp_dtype, kCount>& dtypes, uint32_t each)
      : rows(dtypes.data()), count(static_cast<uint32_t>(kCount) / each), width(each) {}

  const bp_dtype* rows = nullptr;
  uint32_t count = 0, width = 0;
};

// The dtypes of a kernel that sums numbers and bools to numbers of every kind: x and y of each row.
constexpr bp_dtype kSummedDtypes[] = {BP_F16, BP_BF16, BP_F32, BP_F64, BP_I32, BP_I64, BP_BOOL};
constexpr auto kSummedToNumbers = pairs_of(kSummedDtypes, kNumberDtypes);
constexpr DtypeRows kSumPairs{kSummedToNumbers, 2};

// A kernel that takes any strides and gives the same bits each time.
constexpr bp_kernel kernel_row(const char* name, uint32_t op, DtypeRows dtypes,
                               bp_kernel_flags flags = 0) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC | flags,
      .dtype_rows = dtypes.rows,
      .dtype_row_count = dtypes.count,
      .dtype_count = dtypes.width,
      .layouts = BP_LAYOUT_ANY,
  };
}

// Returns such a row for a kernel whose supports() reads neither shapes nor alignment. One answer
// of it is valid for all calls with the same dtypes, attributes and flags.
constexpr bp_kernel kernel_row_of_any_shape(const char* name, uint32_t op, DtypeRows dtypes,
                                            bp_kernel_flags flags = 0) {
  bp_kernel row = kernel_row(name, op, dtypes, flags);
  row.supports_ignores = BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ALIGNMENT;
  return row;
}

}  // namespace bp
