#include "conformance/mutants/mistakes.hpp"

namespace bp::mutants {
namespace {

constexpr uint64_t kAlignment = 256;  // The place of a copy in the buffer is a multiple of it.

// Returns the tensor as it lies at the end of the workspace, with these strides.
bp_tensor placed(const Call& call, const bp_tensor& tensor, int64_t* strides) {
  int64_t stride = 1;
  for (uint32_t axis = tensor.ndim; axis-- > 0;) {
    strides[axis] = stride;
    stride *= tensor.shape[axis];
  }
  const bp_buffer_ref& workspace = call.launch->workspace;
  const uint64_t first = workspace.byte_offset + workspace.size_bytes - kCopyBytes;
  bp_tensor copy = tensor;
  copy.buffer = workspace.buffer;
  copy.byte_offset = (first + kAlignment - 1) / kAlignment * kAlignment;
  copy.strides = strides;
  return copy;
}

}  // namespace

InputCopy::InputCopy(const Call& call, const bp_tensor& tensor)
    : tensor_(placed(call, tensor, strides_.data())), values_(call, tensor_) {
  const Values source(call, tensor);
  status_ = first_failure({&source, &values_});
  for (size_t i = 0; i < values_.size() && status_ == BP_OK; ++i) values_.set(i, source[i]);
}

bool InputCopy::fits(const bp_tensor& tensor) {
  const View view(tensor);
  const auto size_bytes = static_cast<uint64_t>(view.element_count() * view.item_size_bytes());
  return size_bytes + kAlignment <= kCopyBytes;
}

}  // namespace bp::mutants
