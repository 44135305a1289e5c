// Values that a call contains: inline operands, and arguments of kind scalar|tensor.
#pragma once

#include <cstring>

#include "backends/host_kernels/kernels.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::kernels {

// One value that is in the call, or in a tensor that is read when the work runs.
class ScalarArgument {
 public:
  ScalarArgument() = default;  // The value is 0, and in the call.
  // `dtype` is the dtype of the argument, and T below is the type that stores it.
  ScalarArgument(const bp_tensor* tensor, const bp_scalar& scalar, bp_dtype dtype)
      : address_(tensor == nullptr ? nullptr : data<const std::byte>(*tensor)),
        bits_(tensor == nullptr ? convert_scalar(scalar, dtype) : 0) {}

  // Returns NULL if the value is in the call.
  const std::byte* address() const { return address_; }
  uint64_t bits() const { return bits_; }

  template <typename T>
  T get() const {
    T value;
    std::memcpy(&value, address_ == nullptr ? static_cast<const void*>(&bits_) : address_,
                sizeof(T));
    return value;
  }

 private:
  const std::byte* address_ = nullptr;
  uint64_t bits_ = 0;
};

// A value that is in the call as an f64, or in a tensor of f64 or f32.
class RateArgument {
 public:
  RateArgument(const bp_tensor* tensor, const bp_scalar& scalar)
      : value_(tensor, scalar, BP_F64), is_f32_(tensor != nullptr && tensor->dtype == BP_F32) {}

  double get() const {
    return is_f32_ ? static_cast<double>(value_.get<float>()) : value_.get<double>();
  }

 private:
  ScalarArgument value_;
  bool is_f32_;
};

}  // namespace bp::kernels
