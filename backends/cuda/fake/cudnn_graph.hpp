// The graphs of products, reductions and element-wise operations that the fake cuDNN computes. The
// backend asks for attention in this form.
#pragma once

#include <map>
#include <vector>

#include "backends/cuda/fake/cudnn_descriptor.hpp"

namespace bp::cuda::fake {

struct GraphTensor {
  int64_t id = 0, alignment = 1;
  cudaDataType_t type = CUDA_R_32F;
  std::array<int64_t, 4> shape{}, strides{};
  bool is_virtual = false;  // It lies between two operations, and has no address.
  bool is_number = false;   // It is one element in memory of the host.
};

struct GraphOperation {
  cudnnBackendDescriptorType_t type;
  int64_t mode = 0, axis = 0;
  std::vector<int64_t> from;  // The ids of its tensors.
  int64_t to = 0;
};

struct Graph {
  std::map<int64_t, GraphTensor> tensors;
  std::vector<GraphOperation> operations;  // Each one follows those whose results it reads.
};

bool is_graph_operation(cudnnBackendDescriptorType_t type);

// Reads the operations of a graph. Throws std::out_of_range if an attribute is missing.
Graph graph_of(const std::vector<std::shared_ptr<Descriptor>>& operations);

// Returns whether extents and types fit each other, and each tensor between operations is written
// before it is read.
bool fits(const Graph& graph);

// Computes the graph. `memory` has the addresses of tensors, and `numbers` the elements of numbers.
// If `is_broken` is true, sums leave out the last element.
void compute(const Graph& graph, const std::map<int64_t, std::byte*>& memory,
             const std::map<int64_t, double>& numbers, bool is_broken);

}  // namespace bp::cuda::fake
