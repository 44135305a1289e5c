// What an edge of a graph carries while the graph runs.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "runtime/io/onnx/host_tensor.hpp"

namespace bp::onnx {

// Other forms of a constant, which are made when they are first needed, and kept as long as the
// model. Safe from any thread.
class ConstantForms {
 public:
  // Returns the transposed matrix without gaps. It is made on a stream of its own, and has ended
  // when the call returns: the current stream may be recorded, or be another one next time.
  Tensor transposed(const Tensor& matrix);

 private:
  std::mutex mutex_;
  Tensor transposed_;
};

// Elements as DequantizeLinear has them: (code - zero) * scale in f32, in the form of the op
// dequantize. A product may multiply the codes themselves. One run alone has the object.
struct Quantized {
  Tensor codes, scale, zero;             // `zero` is empty if all zero points are 0.
  std::shared_ptr<ConstantForms> forms;  // Of the codes; NULL if they are no constant.
  mutable Tensor decoded;                // Empty until somebody needs the elements.

  Tensor decode() const;
};

// A tensor on the device, on the host, or on both. A shape is made on the host, and most often only
// the host reads it. The elements of a quantised tensor are computed when somebody asks for them.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: results are values.
  Value(HostTensor host)                                // NOLINT: as above.
      : host_(std::make_shared<HostTensor>(std::move(host))) {}
  Value(std::shared_ptr<const Quantized> quantized)  // NOLINT: as above.
      : quantized_(std::move(quantized)) {}
  Value(Tensor tensor, std::shared_ptr<const HostTensor> host,
        std::shared_ptr<ConstantForms> forms = nullptr)
      : tensor_(std::move(tensor)), host_(std::move(host)), forms_(std::move(forms)) {}

  explicit operator bool() const { return tensor_ || host_ != nullptr || quantized_ != nullptr; }
  bp_dtype dtype() const {
    if (quantized_) return BP_F32;
    return host_ ? host_->dtype : tensor_.dtype();
  }
  std::vector<int64_t> shape() const {
    if (quantized_) return quantized_->codes.shape().to_vector();
    return host_ ? host_->shape : tensor_.shape().to_vector();
  }

  // Copies the elements if they are only on the other side, or computes them.
  Tensor on(Device device) const {
    if (quantized_) return quantized_->decode();
    if (!tensor_) return to_device(*host_, device);
    return tensor_.device() == device ? tensor_ : tensor_.to(device);
  }
  std::shared_ptr<const HostTensor> on_host() const {
    if (host_) return host_;
    return std::make_shared<HostTensor>(to_host(quantized_ ? quantized_->decode() : tensor_));
  }

  // Returns the value with its elements computed.
  Value decoded() const { return quantized_ ? Value(quantized_->decode()) : *this; }

  const Quantized* quantized() const { return quantized_.get(); }         // NULL if it is not.
  const std::shared_ptr<ConstantForms>& forms() const { return forms_; }  // NULL: no constant.

 private:
  Tensor tensor_;
  std::shared_ptr<const HostTensor> host_;
  std::shared_ptr<const Quantized> quantized_;
  std::shared_ptr<ConstantForms> forms_;
};

using Values = std::vector<Value>;

}  // namespace bp::onnx
