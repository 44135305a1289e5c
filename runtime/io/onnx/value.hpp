// What an edge of a graph carries while the graph runs.
#pragma once

#include <memory>
#include <utility>

#include "runtime/io/onnx/host_tensor.hpp"

namespace bp::onnx {

// A tensor on the device, on the host, or on both. A shape is made on the host, and most often only
// the host reads it.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: results are values.
  Value(HostTensor host)                                // NOLINT: as above.
      : host_(std::make_shared<HostTensor>(std::move(host))) {}
  Value(Tensor tensor, std::shared_ptr<const HostTensor> host)
      : tensor_(std::move(tensor)), host_(std::move(host)) {}

  explicit operator bool() const { return tensor_ || host_ != nullptr; }
  bp_dtype dtype() const { return host_ ? host_->dtype : tensor_.dtype(); }
  std::vector<int64_t> shape() const { return host_ ? host_->shape : tensor_.shape().to_vector(); }

  // Copies the elements if they are only on the other side.
  Tensor on(Device device) const {
    if (!tensor_) return to_device(*host_, device);
    return tensor_.device() == device ? tensor_ : tensor_.to(device);
  }
  std::shared_ptr<const HostTensor> on_host() const {
    return host_ ? host_ : std::make_shared<HostTensor>(to_host(tensor_));
  }

 private:
  Tensor tensor_;
  std::shared_ptr<const HostTensor> host_;
};

using Values = std::vector<Value>;

}  // namespace bp::onnx
