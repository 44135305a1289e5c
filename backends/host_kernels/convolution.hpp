// The description of a forward convolution, which the four convolution kernels share. Each
// direction computes one of its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/host_kernels/strided.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

enum class Direction : int64_t { kForward, kBackwardInput, kBackwardWeight };

// x (batch, groups * in_channels, input), weight (groups * out_channels, in_channels, kernel),
// y (batch, groups * out_channels, output); under kBackward*, the gradients of two of them.
struct Convolution {
  Direction direction = Direction::kForward;
  bp_dtype sum_dtype = 0;  // BP_F32, or BP_F64 if that is the dtype of all tensors.
  int axes = 0;            // The number of spatial axes, 1 to 3.
  int64_t batch = 0, groups = 0, in_channels = 0, out_channels = 0;  // Channels of one group.
  std::array<int64_t, 3> input{}, kernel{}, output{};
  std::array<int64_t, 3> stride{}, low{}, high{}, dilation{};
  View x, weight, y, bias;
  bp_dtype x_dtype = 0, weight_dtype = 0, y_dtype = 0;  // bias has that of y.
  bool has_bias = false;
  bool takes_bf16 = false;  // Elements of bf16 are multiplied as they lie; subnormals count as 0.

  const View& result() const {
    return direction == Direction::kForward         ? y
           : direction == Direction::kBackwardInput ? x
                                                    : weight;
  }
  bp_dtype result_dtype() const {
    return direction == Direction::kForward         ? y_dtype
           : direction == Direction::kBackwardInput ? x_dtype
                                                    : weight_dtype;
  }
};

// The f64 convolution, which oneDNN lacks. x, weight, y and bias are dense and have addresses.
uint64_t convolution_f64_workspace_size_bytes(const Convolution& c, int thread_count);
void run_convolution_f64(const Convolution& c, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
