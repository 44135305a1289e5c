#include "registry/tensors/scalar.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "backplane/host.h"
#include "registry/tensors/floats.hpp"
#include "registry/tensors/strides.hpp"

static_assert(std::endian::native == std::endian::little);

namespace bp::core {
namespace {

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Returns the value, or the real part of a complex scalar.
double as_double(const bp_scalar& scalar) {
  if (scalar.dtype == BP_C128) return double_of(scalar.bits);
  if (scalar.dtype == BP_I64) return static_cast<double>(static_cast<int64_t>(scalar.bits));
  if (scalar.dtype != BP_F64) return static_cast<double>(scalar.bits);
  return double_of(scalar.bits);
}

float as_float(const bp_scalar& scalar) {
  if (scalar.dtype == BP_I64) return static_cast<float>(static_cast<int64_t>(scalar.bits));
  if (scalar.dtype != BP_F64 && scalar.dtype != BP_C128) return static_cast<float>(scalar.bits);
  return static_cast<float>(as_double(scalar));
}

// Returns the bits of the scalar as an integer. The caller cuts them to the width of its dtype.
uint64_t as_integer(const bp_scalar& scalar) {
  if (scalar.dtype != BP_F64) return scalar.bits;
  const double value = as_double(scalar);
  if (std::isnan(value)) return 0;
  if (value < 0) return static_cast<uint64_t>(static_cast<int64_t>(std::max(value, -0x1p63)));
  return value < 0x1p64 ? static_cast<uint64_t>(value) : UINT64_MAX;
}

// Returns the bits of the scalar in `dtype`, which the caller cuts to its width, or nothing if no
// scalar has this dtype.
std::optional<uint64_t> bits_in(const bp_scalar& scalar, bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
      return scalar.dtype == BP_F64 ? as_double(scalar) != 0 : scalar.bits != 0;
    case BP_I8:
    case BP_U8:
    case BP_I16:
    case BP_U16:
    case BP_I32:
    case BP_U32:
    case BP_I64:
    case BP_U64:
    case BP_I4:
    case BP_U4:
    case BP_I2:
    case BP_U2:
      return as_integer(scalar);
    case BP_F16:
      return tensors::f16_bits(as_double(scalar));
    case BP_BF16:
      return tensors::bf16_bits(as_double(scalar));
    case BP_F32:
      return std::bit_cast<uint32_t>(as_float(scalar));
    case BP_F64:
      return bits_of(as_double(scalar));
    case BP_F8E8M0FNU:
      return tensors::f8e8m0fnu_bits(as_double(scalar));
    default:
      if (const tensors::NarrowFloat* format = tensors::narrow_float(dtype)) {
        return tensors::narrow_float_bits(*format, as_double(scalar));
      }
      return std::nullopt;
  }
}

// Writes the real and the imaginary part.
uint32_t complex_bytes(const bp_scalar& scalar, bp_dtype dtype, unsigned char* out) {
  const double imaginary = scalar.dtype == BP_C128 ? double_of(scalar.imaginary_bits) : 0;
  if (dtype == BP_C128) {
    const double parts[] = {as_double(scalar), imaginary};
    std::memcpy(out, parts, sizeof(parts));
    return sizeof(parts);
  }
  const float parts[] = {as_float(scalar), static_cast<float>(imaginary)};
  std::memcpy(out, parts, sizeof(parts));
  return sizeof(parts);
}

}  // namespace

uint32_t scalar_bytes(const bp_scalar& scalar, bp_dtype dtype, unsigned char* out) {
  if (dtype == BP_C64 || dtype == BP_C128) return complex_bytes(scalar, dtype, out);
  if (scalar.dtype == BP_C128) return 0;
  std::optional<uint64_t> bits = bits_in(scalar, dtype);
  if (!bits) return 0;
  const uint32_t width = bp_dtype_bits(dtype);
  if (width < 8) *bits &= (uint64_t{1} << width) - 1;
  const auto size = static_cast<uint32_t>(tensors::packed_bytes(1, width));
  std::memcpy(out, &*bits, size);  // These are the low bytes.
  return size;
}

bool holds_scalar(const bp_scalar& scalar, bp_dtype dtype) {
  const float value = as_float(scalar);
  const float held = dtype == BP_F16 ? tensors::f16_value(tensors::f16_bits(value))
                                     : tensors::bf16_value(tensors::bf16_bits(value));
  return held == value || std::isnan(value);
}

}  // namespace bp::core
