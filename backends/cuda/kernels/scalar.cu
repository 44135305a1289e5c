#include <bit>
#include <string>

#include "backends/cuda/kernels/scalar.hpp"

namespace bp::cuda {
namespace {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename From>
uint64_t convert_value(From value, bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
      return value != From{0} ? 1 : 0;
    case BP_I8:
    case BP_U8:
      return bits_of(static_cast<uint8_t>(static_cast<int64_t>(value)));
    case BP_I16:
    case BP_U16:
      return bits_of(static_cast<uint16_t>(static_cast<int64_t>(value)));
    case BP_I32:
    case BP_U32:
      return bits_of(static_cast<uint32_t>(static_cast<int64_t>(value)));
    case BP_I64:
      return bits_of(static_cast<int64_t>(value));
    case BP_U64:
      return bits_of(static_cast<uint64_t>(value));
    case BP_F16:
      return bits_of(narrow<Float16>(value));
    case BP_BF16:
      return bits_of(narrow<BFloat16>(value));
    case BP_F32:
      return bits_of(static_cast<float>(value));
    default:
      return bits_of(static_cast<double>(value));
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

}  // namespace bp::cuda
