// What the kernels of quantised tensors share on the host (quantized.glsl).
#pragma once

#include <cstdint>

#include "backplane/shell/shape.hpp"

namespace bp::vulkan {

// The dtypes of codes and of scales.
constexpr bp_dtype kCodeDtypes[] = {BP_I8,       BP_U8,     BP_I4,     BP_U4,     BP_I2,    BP_U2,
                                    BP_F8E4M3FN, BP_F8E5M2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};
constexpr bp_dtype kScaleDtypes[] = {BP_F32, BP_F16, BP_BF16, BP_F8E8M0FNU, BP_F8E4M3FN};

// How the scales of a tensor lie along one of its axes: `block` elements share a scale, and
// `stride` is the way to the next one, in elements. If there is one scale, the stride is 0.
struct BlockAxis {
  uint32_t block = 1;
  int64_t stride = 0;
};

inline BlockAxis block_axis(const bp_tensor& of, const bp_tensor& scale, uint32_t axis) {
  if (scale.shape[axis] <= 1) return {};
  return {static_cast<uint32_t>(of.shape[axis] / scale.shape[axis]), scale.strides[axis]};
}

}  // namespace bp::vulkan
