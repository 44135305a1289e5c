// Helpers of ops with a tensor of indices.
#pragma once

#include <array>
#include <string>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

using Strides = std::array<int64_t, BP_MAX_RANK>;

// Returns the specialization constant for an attribute `bounds`. `undefined` clamps too: results
// may be anything, and clamped indices touch no foreign memory.
inline uint32_t clamps(uint32_t bounds) { return bounds != 0 ? 1 : 0; }

// Returns the function that makes the failure text of a wrong index, which lies at an address.
// `first` is the address of the first element of `argument`.
inline Launch::FailureText wrong_index(const char* op, const char* argument,
                                       const bp_tensor& indices, uint64_t first, int64_t extent) {
  return [=, item_size_bytes = dtype_size_bytes(indices.dtype)](int64_t index, uint64_t place) {
    const int64_t position = static_cast<int64_t>(place - first) / item_size_bytes;
    return bad_index_text(op, argument, position, index, extent);
  };
}

}  // namespace bp::vulkan
