// Copies between dtypes and layouts run the op `copy`. Copies between host and devices move bytes.
#include <bit>
#include <cstring>

#include "backplane/runtime/ops.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/tensors/floats.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace detail {
namespace {

// Copies to another device. The gradient is copied back.
struct TransferNode final : Node {
  explicit TransferNode(const Tensor& x)
      : Node("to", edges_, 1, nullptr, 0), source_(&target_of(x)) {
    connect(0, x);
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    grad_inputs[0] = grad_outputs[0].to(Device(*source_));
  }
  Edge edges_[1];
  const bp_target* source_;
};

bp_stream* stream_of(const bp_target& target) {
  bp_stream* stream = current_stream(target);
  return stream != nullptr ? stream : target.default_stream;
}

bp_buffer_ref bytes_of(const Tensor& x, uint64_t size_bytes) {
  return {x.get()->buffer, x.get()->byte_offset, size_bytes};
}

void check_size(const char* call, const Tensor& x, uint64_t size_bytes) {
  const uint64_t needed = x.size_bytes();
  if (size_bytes != needed) {
    fail(std::string(call) + ": the host has " + std::to_string(size_bytes) + " bytes, and " +
         describe(x) + " has " + std::to_string(needed));
  }
}

void check_unrecorded(const char* call, bool is_recorded) {
  if (is_recorded) {
    fail(std::string(call) + ": the tensor requires a gradient, and writes in place are not " +
         "recorded; put them under a bp::NoGradGuard");
  }
}

}  // namespace
}  // namespace detail

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const { return bp::copy(*this, dtype()); }

Tensor Tensor::to(bp_dtype dtype) const {
  return dtype == this->dtype() ? *this : bp::copy(*this, dtype);
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor result;
  {
    const NoGradGuard guard;
    // A copy through the host works between any two backends.
    const Tensor source = contiguous();
    std::vector<uint8_t> bytes(size_bytes());
    source.copy_to_host(bytes.data(), bytes.size());
    result = empty(shape(), dtype(), device);
    result.copy_from_host(bytes.data(), bytes.size());
  }
  if (detail::is_recorded(*this))
    detail::attach(detail::make_node<detail::TransferNode>(*this), result);
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  detail::check_unrecorded("copy_from", detail::is_recorded(*this, source));
  Tensor read = source.to(device());
  // No element may be written before it was read through another view of the same memory.
  if (read.impl()->storage == impl_->storage) read = read.clone();
  copy_out(*this, read.expand(shape()));
}

void Tensor::fill(Scalar value) const {
  detail::check_unrecorded("fill", detail::is_recorded(*this));
  fill_out(*this, value);
}

void Tensor::copy_from_host(const void* source, uint64_t size_bytes) const {
  detail::check_unrecorded("copy_from_host", detail::is_recorded(*this));
  detail::check_present("copy_from_host", *this);
  detail::check_size("copy_from_host", *this, size_bytes);
  if (!is_contiguous()) {
    const Tensor staged = empty(shape(), dtype(), device());
    staged.copy_from_host(source, size_bytes);
    return copy_from(staged);
  }
  const bp_target& target = detail::target_of(*this);
  const bp_buffer_ref memory = detail::bytes_of(*this, size_bytes);
  if (size_bytes != 0) {
    check(target.allocator->copy_from_host(target.allocator->self, detail::stream_of(target),
                                           &memory, source, BP_BORROW_DURING_CALL),
          "copy_from_host");
  }
  detail::count_write(*this);
}

void Tensor::copy_to_host(void* host, uint64_t size_bytes) const {
  detail::check_present("copy_to_host", *this);
  detail::check_size("copy_to_host", *this, size_bytes);
  const NoGradGuard guard;
  const Tensor source = contiguous();
  const bp_target& target = detail::target_of(source);
  const bp_buffer_ref memory = detail::bytes_of(source, size_bytes);
  if (size_bytes == 0) return;
  check(target.allocator->copy_to_host(target.allocator->self, detail::stream_of(target), host,
                                       &memory, BP_BORROW_DURING_CALL, UINT64_MAX),
        "copy_to_host");
}

void Tensor::check_host_type(bp_dtype wanted, uint64_t size_bytes) const {
  const bp_dtype given = dtype();
  const bool is_raw = (given == BP_F16 || given == BP_BF16) && wanted == BP_U16;
  const bool is_byte = element_bits() == 8 && (wanted == BP_U8 || wanted == BP_I8);
  if (given == wanted || is_raw || (is_byte && size_bytes == 1)) return;
  detail::fail("to_vector: the tensor is " + dtype_text(given) + ", and the host type is " +
               dtype_text(wanted) +
               (element_bits() % 8 == 0 ? "; use to(dtype) first"
                                        : "; copy_to_host() gives the bytes of packed elements"));
}

namespace {

// Returns the one element as 8 bytes, widened to f64, i64 or u64.
bp_scalar read_element(const Tensor& x) {
  if (x.numel() != 1) {
    detail::fail("item: the tensor has the shape " + to_string(x.shape()) +
                 "; allowed: one element");
  }
  if (detail::is_coded(x.dtype())) return read_element(detail::decoded(x));
  uint64_t bits = 0;
  if (x.size_bytes() <= sizeof(bits)) x.copy_to_host(&bits, x.size_bytes());
  const auto float_bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  switch (x.dtype()) {
    case BP_F64:
      return {BP_F64, 0, bits};
    case BP_F32:
      return {BP_F64, 0, float_bits(double{std::bit_cast<float>(static_cast<uint32_t>(bits))})};
    case BP_F16:
      return {BP_F64, 0, float_bits(double{tensors::f16_value(static_cast<uint16_t>(bits))})};
    case BP_BF16:
      return {BP_F64, 0, float_bits(double{tensors::bf16_value(static_cast<uint16_t>(bits))})};
    case BP_BOOL:
    case BP_U8:
    case BP_U16:
    case BP_U32:
      return {BP_I64, 0, bits};
    case BP_U64:
      return {BP_U64, 0, bits};
    case BP_I8:
      return {BP_I64, 0, static_cast<uint64_t>(int64_t{static_cast<int8_t>(bits)})};
    case BP_I16:
      return {BP_I64, 0, static_cast<uint64_t>(int64_t{static_cast<int16_t>(bits)})};
    case BP_I32:
      return {BP_I64, 0, static_cast<uint64_t>(int64_t{static_cast<int32_t>(bits)})};
    case BP_I64:
      return {BP_I64, 0, bits};
    default:
      detail::fail("item: the dtype " + dtype_text(x.dtype()) + " has no host type");
  }
}

}  // namespace

double Tensor::item_f64() const {
  const bp_scalar value = read_element(*this);
  if (value.dtype == BP_F64) return std::bit_cast<double>(value.bits);
  if (value.dtype == BP_U64) return static_cast<double>(value.bits);
  return static_cast<double>(static_cast<int64_t>(value.bits));
}

int64_t Tensor::item_i64() const {
  const bp_scalar value = read_element(*this);
  if (value.dtype != BP_F64) return static_cast<int64_t>(value.bits);
  const auto number = std::bit_cast<double>(value.bits);
  constexpr double kEnd = 0x1p63;
  if (!(number >= -kEnd && number < kEnd)) {
    detail::fail("item: the element is " + short_text(number) +
                 ", which no integer of 64 bits holds; use item<double>()");
  }
  return static_cast<int64_t>(number);
}

}  // namespace bp
