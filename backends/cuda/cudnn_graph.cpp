#include "backends/cuda/cudnn_graph.hpp"

#include <array>
#include <string>

namespace bp::cuda {

cudnnDataType_t dnn_type_of(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return CUDNN_DATA_HALF;
    case BP_BF16:
      return CUDNN_DATA_BFLOAT16;
    case BP_F32:
      return CUDNN_DATA_FLOAT;
    case BP_F64:
      return CUDNN_DATA_DOUBLE;
    default:
      throw StatusError(BP_UNSUPPORTED, "cuDNN is not asked for dtype " + std::to_string(dtype));
  }
}

DnnGraph::Handle DnnGraph::keep(DnnDescriptor part) {
  made_.push_back(std::move(part));
  return made_.back().get();
}

DnnGraph::Handle DnnGraph::tensor(DnnDescriptor d, cudnnDataType_t type, int64_t id) {
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type).set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id).finalize();
  return keep(std::move(d));
}

DnnGraph::Handle DnnGraph::memory(const DnnMemory& t) {
  DnnDescriptor d(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int ndim = static_cast<int>(t.shape.size());
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.shape.data(), ndim)
      .set(CUDNN_ATTR_TENSOR_STRIDES, t.strides.data(), ndim)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment_bytes);
  return tensor(std::move(d), t.type, t.id);
}

DnnGraph::Handle DnnGraph::between(cudnnDataType_t type, std::span<const int64_t, 4> shape) {
  std::array<int64_t, 4> strides{};
  int64_t stride = 1;
  for (size_t axis = 4; axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  DnnDescriptor d(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape.data(), 4)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides.data(), 4)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  return tensor(std::move(d), type, next_id_++);
}

DnnGraph::Handle DnnGraph::number(int64_t id, cudnnDataType_t type) {
  constexpr int64_t kOnes[] = {1, 1, 1, 1};
  DnnDescriptor d(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, kOnes, 4)
      .set(CUDNN_ATTR_TENSOR_STRIDES, kOnes, 4)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return tensor(std::move(d), type, id);
}

void DnnGraph::add(DnnDescriptor operation) {
  if (is_refused_ || !operation.is_taken()) {
    is_refused_ = true;
    return;
  }
  operations_.push_back(keep(std::move(operation)));
}

void DnnGraph::multiply(Handle a, Handle b, Handle to) {
  DnnDescriptor how(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  DnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(how)))
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to);
  add(std::move(operation));
}

void DnnGraph::reduce(cudnnReduceTensorOp_t mode, Handle from, Handle to) {
  DnnDescriptor how(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  DnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(how)))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
  add(std::move(operation));
}

namespace {

DnnDescriptor pointwise(const Cudnn& library, cudnnPointwiseMode_t mode, cudnnDataType_t compute) {
  DnnDescriptor how(library, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  return how;
}

}  // namespace

void DnnGraph::add_pointwise(DnnDescriptor mode, Handle left, Handle right, Handle third,
                             Handle to) {
  mode.finalize();
  DnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(mode)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, left)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
  if (right != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, right);
  if (third != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, third);
  add(std::move(operation));
}

void DnnGraph::map(cudnnPointwiseMode_t mode, cudnnDataType_t compute, Handle left, Handle right,
                   Handle to) {
  add_pointwise(pointwise(library_, mode, compute), left, right, nullptr, to);
}

void DnnGraph::indices(int64_t axis, Handle like, Handle to) {
  DnnDescriptor how = pointwise(library_, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT);
  how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  add_pointwise(std::move(how), like, nullptr, nullptr, to);
}

void DnnGraph::select(Handle condition, Handle yes, Handle no, Handle to) {
  add_pointwise(pointwise(library_, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), yes, no,
                condition, to);
}

std::vector<DnnDescriptor> DnnGraph::finish(cudnnHandle_t handle) && {
  if (is_refused_) return {};
  DnnDescriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations_),
           operations_.data())
      .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  if (!graph.is_taken()) return {};
  made_.push_back(std::move(graph));
  return std::move(made_);
}

}  // namespace bp::cuda
