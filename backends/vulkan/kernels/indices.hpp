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
  return [op, extent](int64_t index) { return bad_index_text(op, "an index", index, extent); };
}

}  // namespace bp::vulkan
