// What a row of a kernel table says of the kernel: its name, the op, and the dtypes that it claims.
// The make_kernel() of a backend adds the functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backplane/kernel.h"
#include "backplane/shell/dtypes.hpp"

namespace bp {

// Rows of `width` dtypes each, for as many free arguments of the op.
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

// The same for a kernel whose supports() reads neither shapes nor alignment: one answer serves all
// calls with the same dtypes, attributes and flags.
constexpr bp_kernel kernel_row_of_any_shape(const char* name, uint32_t op, DtypeRows dtypes,
                                            bp_kernel_flags flags = 0) {
  bp_kernel row = kernel_row(name, op, dtypes, flags);
  row.supports_ignores = BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ALIGNMENT;
  return row;
}

}  // namespace bp
