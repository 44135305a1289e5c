#include "registry/tensors/scalar.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "registry/tensors/floats.hpp"

static_assert(std::endian::native == std::endian::little);

namespace bp::core {
namespace {

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double as_double(const bp_scalar& scalar) {
  if (scalar.dtype == BP_I64) return static_cast<double>(static_cast<int64_t>(scalar.bits));
  if (scalar.dtype != BP_F64) return static_cast<double>(scalar.bits);
  double value;
  std::memcpy(&value, &scalar.bits, sizeof(value));
  return value;
}

float as_float(const bp_scalar& scalar) {
  if (scalar.dtype == BP_I64) return static_cast<float>(static_cast<int64_t>(scalar.bits));
  if (scalar.dtype != BP_F64) return static_cast<float>(scalar.bits);
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

}  // namespace

uint32_t scalar_bytes(const bp_scalar& scalar, bp_dtype dtype, unsigned char* out) {
  uint64_t bits;
  uint32_t size;
  switch (dtype) {
    case BP_BOOL:
      bits = scalar.dtype == BP_F64 ? as_double(scalar) != 0 : scalar.bits != 0;
      size = 1;
      break;
    case BP_I8:
    case BP_U8:
      bits = as_integer(scalar);
      size = 1;
      break;
    case BP_I16:
    case BP_U16:
      bits = as_integer(scalar);
      size = 2;
      break;
    case BP_I32:
    case BP_U32:
      bits = as_integer(scalar);
      size = 4;
      break;
    case BP_I64:
    case BP_U64:
      bits = as_integer(scalar);
      size = 8;
      break;
    case BP_F16:
      bits = tensors::f16_bits(as_double(scalar));
      size = 2;
      break;
    case BP_BF16:
      bits = tensors::bf16_bits(as_double(scalar));
      size = 2;
      break;
    case BP_F32: {
      const float value = as_float(scalar);
      uint32_t word;
      std::memcpy(&word, &value, sizeof(word));
      bits = word;
      size = 4;
      break;
    }
    case BP_F64:
      bits = bits_of(as_double(scalar));
      size = 8;
      break;
    default:
      return 0;
  }
  std::memcpy(out, &bits, size);  // These are the low bytes.
  return size;
}

}  // namespace bp::core
