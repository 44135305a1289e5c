// The graph of a convolution: one operation.
#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/cudnn_graph.hpp"

namespace bp::cuda {
namespace {

constexpr int64_t kAlignmentBytes = 16;

int64_t size_bytes_of(bp_dtype dtype) { return dtype == BP_F64 ? 8 : dtype == BP_F32 ? 4 : 2; }

// Sets a factor of an operation. The library reads a float, or a double if the operation computes
// in f64, from the bytes that it is given, whatever type they are said to have.
void set_factor(DnnDescriptor& operation, cudnnBackendAttributeName_t name, double value,
                bp_dtype dtype) {
  const auto narrow = static_cast<float>(value);
  if (dtype == BP_F64) {
    operation.set(name, CUDNN_TYPE_DOUBLE, 1, &value);
  } else {
    operation.set(name, CUDNN_TYPE_FLOAT, 1, &narrow);
  }
}

DnnDescriptor make_convolution(const Cudnn& library, const DnnProblem& p) {
  DnnDescriptor d(library, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int axes = p.ndim - 2;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, p.dtype == BP_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{axes})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilation.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.stride.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p.low.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p.high.data(), axes)
      .finalize();
  return d;
}

// The attributes of one direction's operation.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, weight, y, alpha, beta;
};

OperationNames names_of(DnnDirection direction) {
  switch (direction) {
    case DnnDirection::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case DnnDirection::kBackwardInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

}  // namespace

std::vector<DnnDescriptor> make_dnn_graph(const Cudnn& library, cudnnHandle_t handle,
                                          const DnnProblem& p) {
  const OperationNames names = names_of(p.direction);
  DnnGraph graph(library);
  const auto memory = [&](DnnConvolutionTensor id, const DnnTensor& tensor) {
    const auto ndim = static_cast<size_t>(p.ndim);
    return graph.memory(
        {.id = static_cast<int64_t>(id),
         .type = dnn_type_of(p.dtype),
         .shape = std::span(tensor.shape).first(ndim),
         .strides = std::span(tensor.strides).first(ndim),
         .alignment_bytes = p.is_aligned ? kAlignmentBytes : size_bytes_of(p.dtype)});
  };
  DnnDescriptor operation(library, names.type);
  operation.set(names.x, memory(DnnConvolutionTensor::kX, p.x))
      .set(names.weight, memory(DnnConvolutionTensor::kWeight, p.weight))
      .set(names.y, memory(DnnConvolutionTensor::kY, p.y))
      .set(names.convolution, graph.keep(make_convolution(library, p)));
  set_factor(operation, names.alpha, 1, p.dtype);
  set_factor(operation, names.beta, p.adds ? 1 : 0, p.dtype);
  graph.add(std::move(operation));
  return std::move(graph).finish(handle);
}

}  // namespace bp::cuda
