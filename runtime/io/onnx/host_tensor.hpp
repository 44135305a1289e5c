// A tensor in memory of the host: constants as a file has them, and values that the host looks at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/runtime/tensor.hpp"

namespace bp::onnx {

struct HostTensor {
  bp_dtype dtype = 0;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // Row-major without gaps, packed as copy_to_host() packs.

  int64_t numel() const;

  // Returns the elements as integers. The dtype must be bool or an integer of 8 bits or more.
  // Throws Error, in which `what` names the tensor.
  std::vector<int64_t> to_ints(const std::string& what) const;

  // Returns the elements as doubles. The dtype must be bool, an integer of 8 bits or more, f16,
  // bf16, f32 or f64.
  std::vector<double> to_doubles(const std::string& what) const;
};

// Returns a tensor of one axis, or of none if `shape` is empty and there is one number.
HostTensor host_ints(const std::vector<int64_t>& numbers, std::vector<int64_t> shape);

// Does the same for integers of another dtype of 8 bits or more, in which they wrap.
HostTensor host_integers(const std::vector<int64_t>& numbers, std::vector<int64_t> shape,
                         bp_dtype dtype);

HostTensor to_host(const Tensor& tensor);
Tensor to_device(const HostTensor& tensor, Device device);

// Returns the number of elements of `shape`, or -1 if it has a negative extent, more than
// BP_MAX_RANK axes, or more elements than a tensor may have.
int64_t count_or_negative(const std::vector<int64_t>& shape);

}  // namespace bp::onnx
