// The short way for elementwise calls: tensors of one shape and dtype, without gaps, on one device.
//
// The boxed path of registrar.cpp handles every call and costs about a microsecond; the calls that
// models make most need none of what it looks at. They are recognized here, and all others go on.
#pragma once

#include "mapped.h"

namespace bpt {

// An op whose description says that its result has the shape of its tensors, and their dtype or
// bool.
class DirectOp {
 public:
  // NULL if the op is of another kind, or takes other arguments than one or two tensors.
  static std::unique_ptr<DirectOp> of(const Row& row, size_t tensor_count);

  // True if these tensors can take the short way.
  bool takes(const at::Tensor& a) const;
  bool takes(const at::Tensor& a, const at::Tensor& b) const;

  // True if y, which has elements, can be the result for `a`.
  bool gives(const at::Tensor& a, const at::Tensor& y) const;

  // If y is NULL, the result is made. Throws Unsupported as a launch does.
  at::Tensor run(const at::Tensor& a, const at::Tensor* b, const at::Tensor* y) const;

 private:
  const Op* op_ = nullptr;
  uint32_t offsets_[3] = {};  // Of the first tensor, the second, and the output.
  uint64_t types_ = 0;        // Bit i: at::ScalarType i may be given.
  bool is_bool_ = false;
};

// Registers the operator with the short way in front of `mapped`, if its signature is one of those
// that have one; else returns false.
bool register_direct(const c10::OperatorHandle& op, const Row& first_row,
                     c10::KernelFunction mapped);

}  // namespace bpt
