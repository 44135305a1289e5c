// Convolutions in which each channel of x makes one channel of y, in f32.
//
// oneDNN reorders images to its own layout and back, which takes longer than the few products.
#pragma once

#include <cstdint>

#include "backends/host_kernels/convolution.hpp"

namespace bp::kernels {

// Returns whether run_depthwise() takes the convolution.
bool is_depthwise(const Convolution& c);

uint64_t depthwise_workspace_size_bytes(const Convolution& c, int thread_count);
void run_depthwise(const Convolution& c, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
