#include "conformance/numerics/fills.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>

#include "conformance/numerics/narrow_format.hpp"
#include "conformance/numerics/philox.hpp"

namespace bp::conformance {
namespace {

std::vector<DoubleDouble> float_specials(bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  const double tiny = format.smallest_subnormal();
  const double normal = format.smallest_normal();
  const double magnitudes[] = {0.0,
                               tiny,
                               normal - tiny,  // The largest subnormal number.
                               normal,
                               1.0,
                               1 + 2 * format.unit_roundoff(),
                               1 - format.unit_roundoff(),
                               0.5,
                               1.5,
                               2.5,
                               format.largest(),
                               HUGE_VAL};
  std::vector<DoubleDouble> values;
  for (const double magnitude : magnitudes) {
    values.emplace_back(magnitude);
    values.emplace_back(-magnitude);
  }
  values.emplace_back(std::numeric_limits<double>::quiet_NaN());
  return values;
}

std::vector<DoubleDouble> integer_specials(bp_dtype dtype) {
  if (dtype == BP_BOOL) return {DoubleDouble(0), DoubleDouble(1)};
  const int bits = static_cast<int>(dtype_bits(dtype));
  const bool has_sign = !is_unsigned(dtype);
  const DoubleDouble top = std::ldexp(1.0, has_sign ? bits - 1 : bits);
  const DoubleDouble bottom = has_sign ? -top : DoubleDouble(0);
  std::vector<DoubleDouble> values = {0.0,   1.0, 2.0, top - DoubleDouble(1), top - DoubleDouble(2),
                                      bottom};
  if (has_sign) {
    values.emplace_back(-1.0);
    values.push_back(bottom + DoubleDouble(1));
  }
  return values;
}

// Equal limits, such as two infinities, give their value.
double uniform(uint64_t bits, double low, double high) {
  if (low == high) return low;
  return low + (high - low) * (static_cast<double>(bits >> 11) * 0x1p-53);
}

// Returns an integer in [-range, range] without 0, or in [1, range] if the dtype has no negative
// numbers.
DoubleDouble dense_integer(bp_dtype dtype, double range, uint64_t bits) {
  if (dtype == BP_BOOL) return DoubleDouble(static_cast<double>(bits & 1));
  const double magnitude = 1 + std::floor(uniform(bits, 0, range));
  return DoubleDouble((bits & 1) != 0 && !is_unsigned(dtype) ? -magnitude : magnitude);
}

// Returns an odd integer of `bits_wanted` bits, or of as many bits as the dtype holds. No shorter
// type holds it.
DoubleDouble wide_integer(bp_dtype dtype, double bits_wanted, uint64_t bits) {
  double width = std::min(bits_wanted, static_cast<double>(dtype_bits(dtype)) - 2);
  if (const FloatFormat* format = float_format(dtype)) {
    width = std::min<double>(bits_wanted, format->precision);
  }
  if (dtype == BP_BOOL) return DoubleDouble(static_cast<double>(bits & 1));
  const double half = std::exp2(width - 1);
  const double magnitude = half + 2 * std::floor(uniform(bits, 0, half / 2)) + 1;
  return DoubleDouble((bits & 1) != 0 && !is_unsigned(dtype) ? -magnitude : magnitude);
}

// Returns a special value whose effect on a formula does not depend on the order of terms. The
// largest numbers are left out, because a sum of them overflows in one order and not in another.
DoubleDouble sparse_special(bp_dtype dtype, uint64_t bits) {
  const FloatFormat& format = *float_format(dtype);
  const double tiny = format.smallest_subnormal(), normal = format.smallest_normal();
  const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                           HUGE_VAL,
                           -HUGE_VAL,
                           0.0,
                           -0.0,
                           tiny,
                           -tiny,
                           normal - tiny,
                           normal};
  return DoubleDouble(values[bits % std::size(values)]);
}

double power_of(size_t base, double exponent) {
  return std::pow(static_cast<double>(base), exponent);
}

// Returns 1 + index, folded into the integers that the dtype represents exactly.
DoubleDouble coordinate_value(bp_dtype dtype, uint64_t index) {
  if (dtype == BP_BOOL) return DoubleDouble(static_cast<double>((index ^ (index >> 3)) & 1));
  uint64_t limit = uint64_t{1} << 31;
  if (const FloatFormat* format = float_format(dtype)) limit = uint64_t{1} << format->precision;
  if (element_size(dtype) == 1) limit = 127;
  if (dtype == BP_I16) limit = 32767;
  return DoubleDouble(1 + static_cast<double>(index % std::min(limit, uint64_t{1} << 31)));
}

}  // namespace

const std::vector<DoubleDouble>& special_values(bp_dtype dtype) {
  static const std::map<bp_dtype, std::vector<DoubleDouble>> table = [] {
    std::map<bp_dtype, std::vector<DoubleDouble>> all;
    for (const bp_dtype d : {BP_F64, BP_F32, BP_F16, BP_BF16}) all[d] = float_specials(d);
    for (const bp_dtype d : {BP_I64, BP_I32, BP_I16, BP_I8, BP_U8, BP_U64, BP_BOOL}) {
      all[d] = integer_specials(d);
    }
    for (const bp_dtype d : {BP_I4, BP_I2, BP_U4, BP_U2}) all[d] = integer_specials(d);
    for (const bp_dtype d :
         {BP_F8E4M3FN, BP_F8E5M2, BP_F8E8M0FNU, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1}) {
      for (const double value : narrow_values(d)) all[d].emplace_back(value);
    }
    return all;
  }();
  return table.at(dtype);
}

DoubleDouble fill_element(const Fill& fill, bp_dtype dtype, uint64_t key, uint32_t tensor,
                          const ElementPlace& place) {
  const uint64_t bits = element_bits(key, tensor, place.index);
  const std::vector<DoubleDouble>& specials = special_values(dtype);
  const bool is_narrow = narrow_format(dtype) != nullptr;
  const bool is_floating = is_float(dtype);
  switch (fill.kind) {
    case FillKind::kExactDense:
      return dense_integer(dtype, fill.high, bits);
    case FillKind::kCoord:
      return coordinate_value(dtype, place.index);
    case FillKind::kOneHot:
      return DoubleDouble(place.last == (place.first * 3 + 1) % place.extent ? 1 : 0);
    case FillKind::kSpecial:
      return specials[place.index % specials.size()];
    case FillKind::kSpecialSlow:
      return specials[place.index / specials.size() % specials.size()];
    case FillKind::kSpecialNth: {
      const auto repeats = static_cast<uint64_t>(power_of(specials.size(), fill.low));
      return specials[place.index / repeats % specials.size()];
    }
    case FillKind::kSparse:
      if (is_floating && bits % 12 == 0) return sparse_special(dtype, bits >> 32);
      break;
    case FillKind::kExactWide:
      return wide_integer(dtype, fill.high, bits);
    case FillKind::kSign:
      return DoubleDouble((bits & 1) != 0 ? -1.0 : 1.0);
    case FillKind::kLogUniform: {
      const double magnitude = std::exp2(uniform(bits, fill.low, fill.high));
      if (is_narrow) return DoubleDouble(magnitude);  // A scale: the store rounds it.
      return DoubleDouble(round_to(dtype, (bits & 1) != 0 ? -magnitude : magnitude));
    }
    case FillKind::kAllBits: {
      std::byte bytes[8] = {};
      std::memcpy(bytes, &place.index, element_size(dtype));  // The bytes are little-endian, as the
                                                              // ABI requires.
      return load_element(dtype, bytes);
    }
    case FillKind::kIndex:
      return DoubleDouble(std::floor(uniform(bits, fill.low, fill.high)));
    case FillKind::kRepeat:
      return DoubleDouble(static_cast<double>(bits % 3) - (is_floating ? 1.0 : 0.0));
    case FillKind::kUniform:
      break;
  }
  const double value = uniform(bits, fill.low, fill.high);
  if (is_narrow) return DoubleDouble(value);
  return is_floating ? DoubleDouble(round_to(dtype, value)) : DoubleDouble(std::floor(value));
}

}  // namespace bp::conformance
