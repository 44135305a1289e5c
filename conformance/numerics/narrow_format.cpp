#include "conformance/numerics/narrow_format.hpp"

#include <cmath>
#include <limits>
#include <map>

namespace bp::conformance {
namespace {

using End = NarrowFormat::End;

struct Row {
  bp_dtype dtype;
  NarrowFormat format;
};
constexpr Row kRows[] = {
    {BP_F8E4M3FN, {4, 3, 7, true, End::kNan}},  {BP_F8E5M2, {5, 2, 15, true, End::kInfinity}},
    {BP_F6E2M3, {2, 3, 1, true, End::kFinite}}, {BP_F6E3M2, {3, 2, 3, true, End::kFinite}},
    {BP_F4E2M1, {2, 1, 1, true, End::kFinite}}, {BP_F8E8M0FNU, {8, 0, 127, false, End::kNan}},
};

double value_of(const NarrowFormat& f, uint32_t code) {
  const uint32_t fraction = code & ((1u << f.fraction_bits) - 1);
  const uint32_t last = (1u << f.exponent_bits) - 1;
  const uint32_t exponent = code >> f.fraction_bits & last;
  const double sign = f.has_sign && code >> (f.bits() - 1) != 0 ? -1 : 1;
  if (exponent == last && f.end == End::kInfinity) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  }
  const bool is_all_ones = exponent == last && fraction + 1 == 1u << f.fraction_bits;
  if (is_all_ones && f.end == End::kNan) return std::numeric_limits<double>::quiet_NaN();
  // A format without a sign has no zero and so no subnormal numbers.
  const bool is_subnormal = exponent == 0 && f.has_sign;
  const double digits = std::ldexp(fraction, -static_cast<int>(f.fraction_bits));
  const int scale = static_cast<int>(is_subnormal ? 1 : exponent) - f.bias;
  return sign * std::ldexp((is_subnormal ? 0 : 1) + digits, scale);
}

struct Table {
  std::vector<double> values;
  uint32_t nan_code = 0;  // 0 if the format has no NaN.
};

const Table& table_of(bp_dtype dtype) {
  static const std::map<bp_dtype, Table> tables = [] {
    std::map<bp_dtype, Table> all;
    for (const Row& row : kRows) {
      Table& table = all[row.dtype];
      for (uint32_t code = 0; code < 1u << row.format.bits(); ++code) {
        table.values.push_back(value_of(row.format, code));
      }
      if (row.format.end == End::kNan) table.nan_code = (1u << (row.format.bits() - 1)) - 1;
      if (row.dtype == BP_F8E8M0FNU) table.nan_code = 0xff;
      if (row.format.end == End::kInfinity) table.nan_code = 0x7e;  // A quiet NaN.
    }
    return all;
  }();
  return tables.at(dtype);
}

}  // namespace

const NarrowFormat* narrow_format(bp_dtype dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row.format;
  }
  return nullptr;
}

const std::vector<double>& narrow_values(bp_dtype dtype) { return table_of(dtype).values; }

uint32_t narrow_code(bp_dtype dtype, double x) {
  const Table& table = table_of(dtype);
  if (std::isnan(x)) return table.nan_code;
  uint32_t best = 0;
  double distance = HUGE_VAL, largest = 0;
  for (const double value : table.values) {
    if (std::isfinite(value)) largest = std::fmax(largest, value);
  }
  const bool has_zero = table.values[0] == 0;
  const double bounded = std::fmin(std::fmax(x, has_zero ? -largest : table.values[0]), largest);
  for (uint32_t code = 0; code < table.values.size(); ++code) {
    const double value = table.values[code];
    if (!std::isfinite(value) || std::signbit(value) != (has_zero && std::signbit(x))) {
      continue;
    }
    const double own = std::fabs(value - bounded);
    if (own < distance || (own == distance && code % 2 == 0)) best = code, distance = own;
  }
  return best;
}

}  // namespace bp::conformance
