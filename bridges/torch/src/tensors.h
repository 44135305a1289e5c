// Tensors as the library sees them, and their making.
#pragma once

#include "devices.h"

namespace bpt {

bp_dtype to_bp(at::ScalarType type) noexcept;  // 0 if the library has no such dtype.
std::optional<at::ScalarType> from_bp(bp_dtype dtype) noexcept;

// An empty tensor; with strides if `stride` is given, else row-major.
at::Tensor new_empty(at::IntArrayRef size, at::ScalarType type, at::Device device,
                     std::optional<at::IntArrayRef> stride = std::nullopt);

// Copies with the conversion of dtypes, between any two of: host, and all devices.
void copy_into(const at::Tensor& src, const at::Tensor& dst, bool non_blocking = false);

// A tensor of no axes with this value.
at::Tensor full_0d(const at::Scalar& value, at::ScalarType type, at::Device device);

}  // namespace bpt
