// A dense tensor that a ceiling or a yardstick works on.
#pragma once

#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/memory/layout.hpp"

namespace bp::conformance {

// A dense tensor, which owns its memory.
class Dense {
 public:
  Dense(Context& t, bp_dtype dtype, Shape shape)
      : t_(t), shape_(std::move(shape)), strides_(place(Layout::kDense, shape_).strides) {
    size_ = (static_cast<uint64_t>(element_count(shape_)) * dtype_bits(dtype) + 7) / 8;
    buffer_ = make_buffer(t, size_);
    view_.buffer = buffer_.get();
    view_.shape = shape_.data();
    view_.strides = strides_.data();
    view_.ndim = static_cast<uint32_t>(shape_.size());
    view_.dtype = dtype;
  }
  Dense(const Dense&) = delete;

  const bp_tensor* view() const { return &view_; }
  bp_buffer_ref ref() const { return range(buffer_, 0, size_); }
  uint64_t size_bytes() const { return size_; }

  void write(bp_stream* stream, const std::vector<uint8_t>& bytes) {
    conformance::write(t_, stream, ref(), bytes);
  }
  std::vector<uint8_t> read(bp_stream* stream) const {
    return conformance::read(t_, stream, ref());
  }

 private:
  Context& t_;
  Shape shape_, strides_;
  uint64_t size_ = 0;
  OwnedBuffer buffer_;
  bp_tensor view_{};
};

}  // namespace bp::conformance
