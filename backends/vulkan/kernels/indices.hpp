// Helpers of ops with a tensor of indices.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

using Strides = std::array<int64_t, BP_MAX_RANK>;

// Returns the function that makes the failure text of a wrong index.
inline std::function<std::string(int64_t)> wrong_index(const char* op, int64_t extent) {
  return [op, extent](int64_t index) {
    return std::string(op) + ": an index is " + std::to_string(index) + ", not from 0 to " +
           std::to_string(extent - 1);
  };
}

}  // namespace bp::vulkan
