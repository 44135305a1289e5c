// Reads elements of at most 8 bits whose codes are no integers of the host: packed ones, and
// floats.
#include <cmath>
#include <vector>

#include "registry/tensors/floats.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::detail {
namespace {

bool is_packed_integer(bp_dtype dtype) {
  return dtype == BP_I4 || dtype == BP_U4 || dtype == BP_I2 || dtype == BP_U2;
}

// Returns the code at `index`, which lies in at most two bytes.
uint32_t code_at(const std::vector<uint8_t>& bytes, uint64_t bits, uint64_t index) {
  const uint64_t first = index * bits;
  uint32_t word = bytes[first / 8];
  if (first % 8 + bits > 8) word |= uint32_t{bytes[first / 8 + 1]} << 8;
  return word >> first % 8 & ((1u << bits) - 1);
}

int64_t integer_of(bp_dtype dtype, uint32_t code) {
  const int64_t half = dtype == BP_I4 ? 8 : dtype == BP_I2 ? 2 : INT64_MAX;
  return code < half ? code : code - 2 * half;
}

float float_of(bp_dtype dtype, uint32_t code) {
  if (dtype == BP_F8E8M0FNU) {
    return code == 255 ? NAN : std::ldexp(1.0F, static_cast<int>(code) - 127);
  }
  return tensors::narrow_float_value(*tensors::narrow_float(dtype), code);
}

template <typename T, typename Decode>
Tensor decoded_as(const Tensor& x, bp_dtype to, const Decode& decode) {
  std::vector<uint8_t> bytes(x.size_bytes());
  x.copy_to_host(bytes.data(), bytes.size());
  std::vector<T> values(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = decode(x.dtype(), code_at(bytes, x.element_bits(), i));
  }
  return from_host(values.data(), x.shape(), to, x.device());
}

}  // namespace

bool is_coded(bp_dtype dtype) {
  return is_packed_integer(dtype) || dtype == BP_F8E8M0FNU ||
         tensors::narrow_float(dtype) != nullptr;
}

Tensor decoded(const Tensor& x) {
  if (is_packed_integer(x.dtype())) return decoded_as<int64_t>(x, BP_I64, integer_of);
  return decoded_as<float>(x, BP_F32, float_of);
}

}  // namespace bp::detail
