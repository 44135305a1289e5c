// Which gradients travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backplane/runtime/tensor.hpp"

namespace bp::distributed {

// Returns lists of indices into `parameters`. It takes the parameters in `order`. A bucket has one
// dtype, and is full when it has `bucket_bytes`, or `first_bytes` for the first one of a dtype. The
// buckets stand in the order in which they become full.
std::vector<std::vector<size_t>> assign_buckets(std::span<const Tensor> parameters,
                                                std::span<const size_t> order, uint64_t first_bytes,
                                                uint64_t bucket_bytes);

// Returns the alignment that a tensor in a bucket needs, so that kernels take it as they take a
// tensor with memory of its own.
int64_t alignment_bytes(Device device);

// Returns the elements that a tensor takes in a bucket with such an alignment.
int64_t padded_count(const Tensor& tensor, int64_t alignment);

}  // namespace bp::distributed
