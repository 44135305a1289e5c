// Builds graphs of cuDNN's backend API, an operation at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/cudnn_descriptor.hpp"
#include "backplane/tensor.h"

namespace bp::cuda {

// A tensor whose elements lie in memory of the device.
struct DnnMemory {
  int64_t id = 0;  // By this number a run finds its address.
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::span<const int64_t> shape, strides;  // The strides are in elements.
  int64_t alignment_bytes = 16;             // Of every address that it will have.
};

// The functions that make a tensor or an operation return a handle that the graph owns.
class DnnGraph {
 public:
  using Handle = cudnnBackendDescriptor_t;

  explicit DnnGraph(const Cudnn& library) : library_(library) {}

  Handle memory(const DnnMemory& tensor);
  // A tensor of 4 axes between two operations, in row-major order.
  Handle between(cudnnDataType_t type, std::span<const int64_t, 4> shape);
  // One number, which a run reads from memory of the host.
  Handle number(int64_t id, cudnnDataType_t type);

  // Each function adds an operation that writes `to`; multiply() adds a product of matrices.
  void multiply(Handle a, Handle b, Handle to);
  void reduce(cudnnReduceTensorOp_t mode, Handle from, Handle to);
  // `compute` is the type in which elements are computed. `right` may be NULL.
  void map(cudnnPointwiseMode_t mode, cudnnDataType_t compute, Handle left, Handle right,
           Handle to);
  // Writes the index of each element of `like` along an axis.
  void indices(int64_t axis, Handle like, Handle to);
  // Writes the element of `yes` where `condition` holds, and that of `no` elsewhere.
  void select(Handle condition, Handle yes, Handle no, Handle to);
  // Adds an operation that is described elsewhere, but not finalized.
  void add(DnnDescriptor operation);
  // Keeps a finalized part of an operation.
  Handle keep(DnnDescriptor part);

  // Ends the graph. Returns it as the last element behind its parts, or nothing if the library
  // refuses it or one of its operations.
  std::vector<DnnDescriptor> finish(cudnnHandle_t handle) &&;

 private:
  Handle tensor(DnnDescriptor d, cudnnDataType_t type, int64_t id);
  void add_pointwise(DnnDescriptor mode, Handle left, Handle right, Handle third, Handle to);

  const Cudnn& library_;
  std::vector<DnnDescriptor> made_;
  std::vector<Handle> operations_;
  int64_t next_id_ = 1000;  // Of tensors between operations, which no run names.
  bool is_refused_ = false;
};

// Returns cuDNN's name of a floating-point dtype. Throws StatusError for another dtype.
cudnnDataType_t dnn_type_of(bp_dtype dtype);

}  // namespace bp::cuda
