// The rows of the element-wise kernels, which ops_spec/emit_highway.py writes.
#pragma once

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

constexpr bp_kernel_flags kElementwiseFlags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE;

template <size_t kCount>
constexpr bp_kernel elementwise_kernel(const char* name, uint32_t op,
                                       const bp_dtype (&dtypes)[kCount], bp_kernel_flags flags) {
  return {
      .name = name,
      .op = op,
      .flags = flags,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
      .layouts = BP_LAYOUT_ANY,
  };
}

}  // namespace bp::kernels
