// Writes the frame of a launch as a line of a recording.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "registry/calls/op_rows.hpp"
#include "registry/layers/recording.hpp"

namespace bp::layers {

// A tensor of a frame. The tensors stand in the order of the frame.
struct FrameTensor {
  std::string name;  // "xs[1]" in a list.
  const bp_tensor* tensor;
  bool is_written;
  bool is_read;
  uint32_t argument;  // Its place among the tensor arguments of the op.
  uint32_t number;    // Its place in the frame: each tensor of a list and absent tensors count.
};

// Returns the tensors that are given.
std::vector<FrameTensor> frame_tensors(const core::OpRow& row, const void* args);

// Returns the members of the frame by name. A tensor has the number of its buffer. A member that a
// later revision than that of the op brought is left out where it is absent.
Json frame_json(const core::OpRow& row, const void* args,
                const std::function<uint64_t(const bp_buffer*)>& number_of);

}  // namespace bp::layers
