// What the four convolution kernels share: one description of the forward convolution, from which
// each direction computes one of its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/strided.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

enum class Direction : int64_t { kForward, kBackwardInput, kBackwardWeight };

// x (batch, groups * in_channels, input), weight (groups * out_channels, in_channels, kernel),
// y (batch, groups * out_channels, output); under kBackward*, the gradients of two of them.
struct Convolution {
  Direction direction = Direction::kForward;
  bp_dtype dtype = 0;  // Of all tensors: BP_F32 or BP_F64.
  int axes = 0;        // Spatial: 1 to 3.
  int64_t batch = 0, groups = 0, in_channels = 0, out_channels = 0;  // Channels of one group.
  std::array<int64_t, 3> input{}, kernel{}, output{};
  std::array<int64_t, 3> stride{}, low{}, high{}, dilation{};
  View x, weight, y, bias;
  bool has_bias = false;

  const View& result() const {
    return direction == Direction::kForward         ? y
           : direction == Direction::kBackwardInput ? x
                                                    : weight;
  }
};

// The f64 convolution, for oneDNN has none. x, weight, y and bias are dense and have addresses.
uint64_t convolution_f64_workspace_size_bytes(const Convolution& c, int thread_count);
void run_convolution_f64(const Convolution& c, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
