#include "backends/vulkan/kernels/columns.hpp"

#include <array>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {
namespace {

struct ConvolutionRecord {
  uint64_t x, columns;
  uint64_t count;
  int64_t strides_x[5];
  uint32_t images, channels;
  uint32_t extents_x[3], extents_y[3];
  uint32_t kernel[3], stride[3], padding[3], dilation[3];
};

ConvolutionRecord record_of(const Convolution& c, const bp_tensor& x) {
  ConvolutionRecord record{};
  const int64_t item = dtype_size_bytes(x.dtype);
  record.channels = static_cast<uint32_t>(c.channels());
  for (uint32_t i = 0; i < 2; ++i) record.strides_x[i] = x.strides[i] * item;
  for (uint32_t i = 0; i < 3; ++i) {
    record.extents_x[i] = record.extents_y[i] = 1;
    record.kernel[i] = record.stride[i] = record.dilation[i] = 1;
    if (i + c.spatial() < 3) continue;
    const uint32_t axis = i + c.spatial() - 3;
    record.strides_x[2 + i] = x.strides[2 + axis] * item;
    record.extents_x[i] = static_cast<uint32_t>(x.shape[2 + axis]);
    record.extents_y[i] = static_cast<uint32_t>(c.y->shape[2 + axis]);
    record.kernel[i] = static_cast<uint32_t>(c.weight->shape[2 + axis]);
    record.stride[i] = static_cast<uint32_t>(c.stride[axis]);
    record.padding[i] = static_cast<uint32_t>(c.padding[axis]);
    record.dilation[i] = static_cast<uint32_t>(c.dilation[axis]);
  }
  return record;
}

}  // namespace

Packed::Packed(const bp_tensor& tensor, uint32_t first, Scratch& scratch)
    : tensor_(tensor),
      is_copy_(!is_contiguous(tensor.ndim - first, tensor.shape + first, tensor.strides + first)) {
  if (is_copy_) copy_ = scratch.like(tensor);
}

bp_status Packed::fetch(Launch& launch) const {
  return is_copy_ ? submit_move(launch, kMapCopy, {&get(), &tensor_}) : bp_status{BP_OK};
}

bp_status Packed::put(Launch& launch) const {
  return is_copy_ ? submit_move(launch, kMapCopy, {&tensor_, &get()}) : bp_status{BP_OK};
}

bp_status submit_columns(Launch& launch, const Convolution& c, const Chunk& chunk, bool folds) {
  ConvolutionRecord record = record_of(c, *c.x);
  record.images = static_cast<uint32_t>(chunk.images);
  record.x = launch.device_address(*c.x) + static_cast<uint64_t>(chunk.first * record.strides_x[0]);
  record.columns = launch.device_address(chunk.columns.tensor());
  int64_t count = chunk.images * c.channels();
  for (uint32_t i = 2; i < c.x->ndim && folds; ++i) count *= c.x->shape[i];
  if (!folds) count *= c.taps() * c.places();
  record.count = static_cast<uint64_t>(count);
  const std::array<uint32_t, 4> constants = {local_size(launch), folds ? 1u : 0u,
                                             one_of(kF32Dtypes, c.x->dtype),
                                             one_of(kF32Dtypes, chunk.columns.tensor().dtype)};
  Ranges x(launch, {c.x}), columns(launch);
  columns.add(launch.workspace());
  return submit(launch, kConvolutionModule, constants, record,
                ceil_divide(record.count, local_size(launch)),
                {folds ? columns : x, folds ? x : columns});
}

}  // namespace bp::vulkan
