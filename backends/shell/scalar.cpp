#include "backplane/shell/scalar.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/dtypes.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16, kernels::Float16, kernels::narrow, kernels::round_to_odd;

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

uint64_t to_integer(std::integral auto value) { return static_cast<uint64_t>(value); }
uint64_t to_integer(double value) {
  if (std::isnan(value)) return 0;
  if (value <= -0x1p63) return uint64_t{1} << 63;
  if (value < 0) return static_cast<uint64_t>(static_cast<int64_t>(value));
  return value < 0x1p64 ? static_cast<uint64_t>(value) : UINT64_MAX;
}

template <typename From>
uint64_t convert_value(From value, bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
      return value != From{0} ? 1 : 0;
    case BP_I8:
    case BP_U8:
      return to_integer(value) & 0xFF;
    case BP_I16:
    case BP_U16:
      return to_integer(value) & 0xFFFF;
    case BP_I32:
    case BP_U32:
      return to_integer(value) & 0xFFFFFFFF;
    case BP_I64:
    case BP_U64:
      return to_integer(value);
    case BP_F16:
      return bits_of(narrow<Float16>(round_to_odd(value)));
    case BP_BF16:
      return bits_of(narrow<BFloat16>(round_to_odd(value)));
    case BP_F32:
      return bits_of(static_cast<float>(value));
    case BP_F64:
      return bits_of(static_cast<double>(value));
    default:
      refuse_dtype(dtype);
  }
}

}  // namespace

uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype) {
  switch (scalar.dtype) {
    case BP_F64:
      return convert_value(std::bit_cast<double>(scalar.bits), dtype);
    case BP_U64:
      return convert_value(scalar.bits, dtype);
    case BP_BOOL:
    case BP_I64:
      return convert_value(static_cast<int64_t>(scalar.bits), dtype);
    default:
      throw StatusError(BP_INVALID_ARGUMENT, "a scalar has dtype " + std::to_string(scalar.dtype) +
                                                 "; bool, i64, u64 and f64 are allowed");
  }
}

uint64_t convert_operand(const bp_scalar& scalar, bp_dtype x) {
  return convert_scalar(scalar, acc_dtype(x));
}

uint64_t convert_moved_operand(const bp_scalar& scalar, bp_dtype x) {
  const uint64_t bits = convert_operand(scalar, x);
  if (acc_dtype(x) == x) return bits;
  const double value = std::bit_cast<float>(static_cast<uint32_t>(bits));
  return convert_value(value, x);
}

}  // namespace bp
