#include "runtime/io/onnx/value.hpp"

#include "backplane/runtime/ops.hpp"

namespace bp::onnx {

Tensor ConstantForms::transposed(const Tensor& matrix) {
  const std::lock_guard lock(mutex_);
  if (transposed_) return transposed_;
  const Stream stream(matrix.device());
  const StreamGuard guard(stream);
  const Tensor made = matrix.transpose().contiguous();
  stream.synchronize();
  return transposed_ = made;
}

Tensor Quantized::decode() const {
  if (!decoded) decoded = dequantize(codes, scale, zero, BP_F32);
  return decoded;
}

}  // namespace bp::onnx
