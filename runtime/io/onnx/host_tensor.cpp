#include "runtime/io/onnx/host_tensor.hpp"

#include <cstring>

#include "registry/tensors/floats.hpp"
#include "registry/tensors/strides.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::onnx {
namespace {

template <typename From, typename To>
std::vector<To> converted(const HostTensor& tensor) {
  std::vector<To> result(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < result.size(); ++i) {
    From element;
    std::memcpy(&element, tensor.bytes.data() + i * sizeof(From), sizeof(From));
    result[i] = static_cast<To>(element);  // NOLINT(bugprone-signed-char-misuse): i8 is a number.
  }
  return result;
}

// Returns false if the dtype is no integer of whole bytes.
template <typename To>
bool convert_integers(const HostTensor& tensor, std::vector<To>& out) {
  switch (tensor.dtype) {
    case BP_BOOL:
    case BP_U8:
      out = converted<uint8_t, To>(tensor);
      return true;
    case BP_I8:
      out = converted<int8_t, To>(tensor);
      return true;
    case BP_U16:
      out = converted<uint16_t, To>(tensor);
      return true;
    case BP_I16:
      out = converted<int16_t, To>(tensor);
      return true;
    case BP_U32:
      out = converted<uint32_t, To>(tensor);
      return true;
    case BP_I32:
      out = converted<int32_t, To>(tensor);
      return true;
    case BP_U64:
      out = converted<uint64_t, To>(tensor);
      return true;
    case BP_I64:
      out = converted<int64_t, To>(tensor);
      return true;
    default:
      return false;
  }
}

// Returns the value of a 16-bit float.
double half_value(bp_dtype dtype, uint16_t code) {
  return dtype == BP_F16 ? tensors::f16_value(code) : tensors::bf16_value(code);
}

}  // namespace

int64_t HostTensor::numel() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<int64_t> HostTensor::to_ints(const std::string& what) const {
  std::vector<int64_t> result;
  if (convert_integers(*this, result)) return result;
  throw Error(BP_INVALID_ARGUMENT,
              what + " is " + dtype_text(dtype) + "; allowed: an integer of 8 to 64 bits, or bool");
}

std::vector<double> HostTensor::to_doubles(const std::string& what) const {
  std::vector<double> result;
  if (convert_integers(*this, result)) return result;
  if (dtype == BP_F32) return converted<float, double>(*this);
  if (dtype == BP_F64) return converted<double, double>(*this);
  if (dtype == BP_F16 || dtype == BP_BF16) {
    for (const auto code : converted<uint16_t, uint16_t>(*this)) {
      result.push_back(half_value(dtype, code));
    }
    return result;
  }
  throw Error(BP_UNSUPPORTED, what + " is " + dtype_text(dtype) +
                                  "; the host reads bool, integers of 8 to 64 bits, f16, bf16, "
                                  "f32 and f64");
}

HostTensor host_ints(const std::vector<int64_t>& numbers, std::vector<int64_t> shape) {
  HostTensor result{BP_I64, std::move(shape), {}};
  result.bytes.resize(numbers.size() * sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(result.bytes.data(), numbers.data(), result.bytes.size());
  return result;
}

// The low bytes of a number come first.
HostTensor host_integers(const std::vector<int64_t>& numbers, std::vector<int64_t> shape,
                         bp_dtype dtype) {
  HostTensor result{dtype, std::move(shape), {}};
  const size_t size = bp_dtype_bits(dtype) / 8;
  result.bytes.resize(numbers.size() * size);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::memcpy(result.bytes.data() + i * size, &numbers[i], size);
  }
  return result;
}

HostTensor to_host(const Tensor& tensor) {
  HostTensor result{tensor.dtype(), tensor.shape().to_vector(), {}};
  result.bytes.resize(tensor.size_bytes());
  tensor.copy_to_host(result.bytes.data(), result.bytes.size());
  return result;
}

Tensor to_device(const HostTensor& tensor, Device device) {
  return from_host(tensor.bytes.data(), tensor.shape, tensor.dtype, device);
}

int64_t count_or_negative(const std::vector<int64_t>& shape) {
  if (shape.size() > BP_MAX_RANK) return -1;
  for (const int64_t extent : shape) {
    if (extent < 0) return -1;
  }
  try {
    return detail::count_elements(shape);
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace bp::onnx
