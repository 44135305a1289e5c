// Tensors of scales and of zero points, each element of which belongs to a block of another tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/quantized.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/narrow.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// A tensor of scales or of zero points. The block of an element is its index divided by `blocks`.
struct BlockTensor {
  BlockTensor() = default;
  // Each scale is multiplied by `tensor_scale`, which may be NULL.
  BlockTensor(const bp_tensor& of, const bp_tensor& tensor, const bp_tensor* tensor_scale = nullptr)
      : view(view_of(tensor)), dtype(tensor.dtype), bits(code_format(tensor.dtype).bits) {
    if (tensor_scale != nullptr) of_all_ = data<float>(*tensor_scale);
    for (uint32_t axis = 0; axis < of.ndim; ++axis) {
      if (tensor.shape[axis] > 1) blocks[axis] = of.shape[axis] / tensor.shape[axis];
      if (tensor.shape[axis] == 1) view.strides[axis] = 0;
    }
  }

  // Returns the offset of the block of an element. `index` has the axes of the other tensor.
  int64_t offset_of(const int64_t* index) const {
    int64_t offset = 0;
    for (uint32_t axis = 0; axis < view.ndim; ++axis) {
      offset += index[axis] / blocks[axis] * view.strides[axis];
    }
    return offset;
  }

  // Returns the number by which all numbers are multiplied. Only tasks on the stream may call this
  // and at(), because earlier tasks may write it.
  float factor() const { return of_all_ == nullptr ? 1.0F : *of_all_; }

  // Returns the number at an offset.
  float at(int64_t offset, const CodeValues& values) const {
    return stored_at(offset, values) * factor();
  }

  View view;
  bp_dtype dtype = 0;
  int bits = 0;  // The bits of a code; 0 for a float of 16 or 32 bits.
  int64_t blocks[BP_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};

 private:
  float stored_at(int64_t offset, const CodeValues& values) const {
    if (bits != 0) return values.values[read_code(view.address, offset * bits, bits)];
    if (dtype == BP_F32) return reinterpret_cast<const float*>(view.address)[offset];
    if (dtype == BP_F16) return reinterpret_cast<const Float16*>(view.address)[offset].to_f32();
    return reinterpret_cast<const BFloat16*>(view.address)[offset].to_f32();
  }

  const float* of_all_ = nullptr;
};

}  // namespace bp::kernels
