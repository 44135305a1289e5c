#include "conformance/numerics/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "conformance/numerics/narrow_format.hpp"

namespace bp::conformance {
namespace {

constexpr FloatFormat kF64{53, -1022, 1023};
constexpr FloatFormat kF32{24, -126, 127};
constexpr FloatFormat kF16{11, -14, 15};
constexpr FloatFormat kBf16{8, -126, 127};

// Returns 2^exponent for the exponents of normal doubles, which suffice for formats narrower than
// f64.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

int exponent_of(const FloatFormat& format, double x) {
  if (x == 0) return format.min_exponent;
  const int exponent = std::ilogb(x);
  return exponent < format.min_exponent ? format.min_exponent : exponent;
}

// A NaN is read as a NaN of the same sign whose payload begins with the same bits, so that it is
// stored again as it was.
constexpr int kNanBits = 52;

// Returns the bits of a value that `format` can represent, in a word of the given width.
uint64_t encode(const FloatFormat& format, int bits, double x) {
  const int fraction_bits = format.precision - 1;
  const uint64_t sign = uint64_t{std::signbit(x)} << (bits - 1);
  const uint64_t all_ones = (uint64_t{1} << (bits - 1 - fraction_bits)) - 1;
  if (std::isnan(x)) {
    const uint64_t bits_of_nan = std::bit_cast<uint64_t>(x) & ((uint64_t{1} << kNanBits) - 1);
    const uint64_t payload = bits_of_nan >> (kNanBits - fraction_bits);
    const uint64_t quiet = uint64_t{1} << (fraction_bits - 1);
    return sign | (all_ones << fraction_bits) | (payload != 0 ? payload : quiet);
  }
  if (std::isinf(x)) return sign | (all_ones << fraction_bits);
  if (format.precision == kF64.precision) return std::bit_cast<uint64_t>(x);
  const int exponent = exponent_of(format, x);
  const auto digits = static_cast<uint64_t>(std::fabs(x) * power_of_two(fraction_bits - exponent));
  const auto biased = static_cast<uint64_t>(exponent - format.min_exponent);
  return sign | (digits + (biased << fraction_bits));  // The hidden bit raises the exponent.
}

double decode(const FloatFormat& format, int bits, uint64_t word) {
  const int fraction_bits = format.precision - 1;
  const uint64_t fraction = word & ((uint64_t{1} << fraction_bits) - 1);
  const uint64_t all_ones = (uint64_t{1} << (bits - 1 - fraction_bits)) - 1;
  const uint64_t biased = (word >> fraction_bits) & all_ones;
  const bool is_negative = (word >> (bits - 1)) != 0;
  const double sign = is_negative ? -1.0 : 1.0;
  if (biased == all_ones) {
    if (fraction == 0) return sign * std::numeric_limits<double>::infinity();
    const uint64_t payload = fraction << (kNanBits - fraction_bits);
    return std::bit_cast<double>((uint64_t{is_negative} << 63) | (uint64_t{0x7ff} << kNanBits) |
                                 payload);
  }
  const uint64_t hidden = biased == 0 ? 0 : uint64_t{1} << fraction_bits;
  const int exponent = format.min_exponent + (biased == 0 ? 0 : static_cast<int>(biased) - 1);
  return sign * static_cast<double>(fraction + hidden) * power_of_two(exponent - fraction_bits);
}

template <typename T>
T read(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <typename T>
void write(T value, std::byte* address) {
  std::memcpy(address, &value, sizeof(T));
}

int64_t load_integer(bp_dtype dtype, const std::byte* address) {
  switch (dtype) {
    case BP_BOOL:
    case BP_U8:
      return read<uint8_t>(address);
    case BP_I8:
      return read<int8_t>(address);
    case BP_I16:
      return read<int16_t>(address);
    case BP_I32:
      return read<int32_t>(address);
    default:
      return read<int64_t>(address);
  }
}

}  // namespace

double FloatFormat::unit_roundoff() const { return std::ldexp(1.0, -precision); }
double FloatFormat::smallest_normal() const { return std::ldexp(1.0, min_exponent); }
double FloatFormat::smallest_subnormal() const {
  return std::ldexp(1.0, min_exponent - precision + 1);
}
double FloatFormat::largest() const {
  return (2.0 - power_of_two(1 - precision)) * power_of_two(max_exponent);
}

const FloatFormat* float_format(bp_dtype dtype) {
  switch (dtype) {
    case BP_F64:
      return &kF64;
    case BP_F32:
      return &kF32;
    case BP_F16:
      return &kF16;
    case BP_BF16:
      return &kBf16;
    default:
      return nullptr;
  }
}

bool is_float(bp_dtype dtype) { return float_format(dtype) != nullptr; }

uint64_t dtype_bits(bp_dtype dtype) {
  switch (dtype) {
    case BP_F64:
    case BP_I64:
    case BP_U64:
      return 64;
    case BP_F32:
    case BP_I32:
      return 32;
    case BP_F16:
    case BP_BF16:
    case BP_I16:
      return 16;
    case BP_BOOL:
    case BP_I8:
    case BP_U8:
      return 8;
    case BP_I4:
    case BP_U4:
      return 4;
    case BP_I2:
    case BP_U2:
      return 2;
    default:
      if (const NarrowFormat* format = narrow_format(dtype)) return format->bits();
      throw std::invalid_argument("the suite has no data of dtype " + std::to_string(dtype));
  }
}

uint64_t element_size(bp_dtype dtype) { return (dtype_bits(dtype) + 7) / 8; }

bool is_packed(bp_dtype dtype) { return dtype_bits(dtype) % 8 != 0; }

bool is_unsigned(bp_dtype dtype) {
  return dtype == BP_U64 || dtype == BP_U8 || dtype == BP_U4 || dtype == BP_U2;
}

const char* dtype_text(bp_dtype dtype) {
  switch (dtype) {
    case BP_F64:
      return "f64";
    case BP_F32:
      return "f32";
    case BP_F16:
      return "f16";
    case BP_BF16:
      return "bf16";
    case BP_I64:
      return "i64";
    case BP_I32:
      return "i32";
    case BP_I16:
      return "i16";
    case BP_I8:
      return "i8";
    case BP_U64:
      return "u64";
    case BP_U8:
      return "u8";
    case BP_BOOL:
      return "bool";
    case BP_I4:
      return "i4";
    case BP_I2:
      return "i2";
    case BP_U4:
      return "u4";
    case BP_U2:
      return "u2";
    case BP_F8E4M3FN:
      return "f8e4m3fn";
    case BP_F8E5M2:
      return "f8e5m2";
    case BP_F8E8M0FNU:
      return "f8e8m0fnu";
    case BP_F6E2M3:
      return "f6e2m3";
    case BP_F6E3M2:
      return "f6e3m2";
    case BP_F4E2M1:
      return "f4e2m1";
    default:
      throw std::invalid_argument("the suite has no name for dtype " + std::to_string(dtype));
  }
}

bp_dtype accumulator_of(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 ? bp_dtype{BP_F32} : dtype;
}

double round_to(bp_dtype dtype, DoubleDouble x) {
  const FloatFormat& format = *float_format(dtype);
  if (format.precision == 53 || x.hi == 0 || !std::isfinite(x.hi)) return x.hi;
  const int shift = format.precision - 1 - exponent_of(format, x.hi);
  const double scaled = std::fabs(x.hi) * power_of_two(shift);
  const double tail = std::signbit(x.hi) ? -x.lo : x.lo;
  auto digits = static_cast<int64_t>(scaled);  // The digits are below 2^precision.
  const double fraction = scaled - static_cast<double>(digits);
  const bool is_odd = (digits & 1) != 0;
  if (fraction > 0.5 || (fraction == 0.5 && (tail > 0 || (tail == 0 && is_odd)))) ++digits;
  const double magnitude = static_cast<double>(digits) * power_of_two(-shift);
  if (magnitude > format.largest()) return std::copysign(HUGE_VAL, x.hi);
  return std::copysign(magnitude, x.hi);
}

double ulp(bp_dtype dtype, double x) {
  const FloatFormat& format = *float_format(dtype);
  if (!std::isfinite(x)) return std::ldexp(1.0, format.max_exponent - format.precision + 1);
  return std::ldexp(1.0, exponent_of(format, x) - format.precision + 1);
}

double next_after(bp_dtype dtype, double x, double toward) {
  const FloatFormat& format = *float_format(dtype);
  if (format.precision == 53) return std::nextafter(x, toward);
  if (std::isnan(x) || x == toward) return x;
  if (x == 0) return std::copysign(format.smallest_subnormal(), toward);
  if (std::isinf(x)) return std::copysign(format.largest(), x);
  const bool outward = (toward > x) == (x > 0);
  // The spacing just below a power of two is half of the spacing above it.
  const double below = std::nextafter(std::fabs(x), 0.0);
  const double step = outward ? ulp(dtype, x) : ulp(dtype, below);
  return round_to(dtype, std::copysign(std::fabs(x) + (outward ? step : -step), x));
}

DoubleDouble load_element(bp_dtype dtype, const std::byte* address) {
  if (is_coded(dtype)) return load_at_bit(dtype, address, 0);
  switch (dtype) {
    case BP_F64:
      return read<double>(address);
    case BP_F32: {
      const auto value = read<float>(address);  // A conversion of a NaN would make it quiet.
      return std::isnan(value) ? decode(kF32, 32, read<uint32_t>(address)) : double{value};
    }
    case BP_F16:
      return decode(kF16, 16, read<uint16_t>(address));
    case BP_BF16:
      return decode(kBf16, 16, read<uint16_t>(address));
    case BP_U64:
      return two_sum(static_cast<double>(read<uint64_t>(address) >> 32) * 0x1p32,
                     static_cast<double>(read<uint64_t>(address) & 0xffffffffu));
    default:
      return DoubleDouble::from_int64(load_integer(dtype, address));
  }
}

void store_element(bp_dtype dtype, DoubleDouble value, std::byte* address) {
  if (is_coded(dtype)) return store_at_bit(dtype, value, address, 0);
  if (const FloatFormat* format = float_format(dtype)) {
    const int bits = static_cast<int>(element_size(dtype)) * 8;
    const uint64_t word = encode(*format, bits, round_to(dtype, value));
    std::memcpy(address, &word, element_size(dtype));  // The bytes are little-endian, as the ABI
                                                       // requires.
    return;
  }
  const int64_t integer = dtype == BP_BOOL ? value.hi != 0 : to_int64(value);
  std::memcpy(address, &integer, element_size(dtype));
}

// An element of fewer than 8 bits lies in at most two bytes, and of 8 bits in one here.
uint64_t element_bits_at_bit(bp_dtype dtype, const std::byte* bytes, uint64_t bit) {
  if (!is_coded(dtype)) return element_bits_at(dtype, bytes + bit / 8);
  const uint64_t width = dtype_bits(dtype);
  uint64_t code = 0;
  for (uint64_t i = 0; i < width; ++i) {
    const auto byte = static_cast<uint64_t>(bytes[(bit + i) / 8]);
    code |= (byte >> (bit + i) % 8 & 1) << i;
  }
  return code;
}

DoubleDouble load_at_bit(bp_dtype dtype, const std::byte* bytes, uint64_t bit) {
  if (!is_coded(dtype)) return load_element(dtype, bytes + bit / 8);
  const uint64_t code = element_bits_at_bit(dtype, bytes, bit);
  if (narrow_format(dtype) != nullptr) return narrow_values(dtype)[code];
  const auto half = int64_t{1} << (dtype_bits(dtype) - 1);
  const auto value = static_cast<int64_t>(code);
  return DoubleDouble::from_int64(is_unsigned(dtype) || value < half ? value : value - 2 * half);
}

void store_at_bit(bp_dtype dtype, DoubleDouble value, std::byte* bytes, uint64_t bit) {
  if (!is_coded(dtype)) return store_element(dtype, value, bytes + bit / 8);
  const bool is_narrow = narrow_format(dtype) != nullptr;
  const uint64_t code =
      is_narrow ? narrow_code(dtype, value.hi) : static_cast<uint64_t>(to_int64(value));
  for (uint64_t i = 0; i < dtype_bits(dtype); ++i) {
    std::byte& byte = bytes[(bit + i) / 8];
    const std::byte mask{static_cast<uint8_t>(1u << (bit + i) % 8)};
    byte = (code >> i & 1) != 0 ? byte | mask : byte & ~mask;
  }
}

uint64_t element_bits_at(bp_dtype dtype, const std::byte* address) {
  if (is_coded(dtype)) return element_bits_at_bit(dtype, address, 0);
  uint64_t bits = 0;
  std::memcpy(&bits, address, element_size(dtype));
  return bits;
}

}  // namespace bp::conformance
