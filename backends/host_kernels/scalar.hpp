// Values of the call itself: operands that are inline, and arguments of kind scalar|tensor.
#pragma once

#include <cstring>

#include "backends/host_kernels/kernels.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::kernels {

// One element that is in the call, or in a tensor that is read when the work runs.
class ScalarArgument {
 public:
  // `dtype` is that of the argument; T below stores it.
  ScalarArgument(const bp_tensor* tensor, const bp_scalar& scalar, bp_dtype dtype)
      : address_(tensor == nullptr ? nullptr : data<const std::byte>(*tensor)),
        bits_(tensor == nullptr ? convert_scalar(scalar, dtype) : 0) {}

  // NULL if the value is in the call.
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
  const std::byte* address_;
  uint64_t bits_;
};

}  // namespace bp::kernels
