#include "conformance/faults/severity.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bp::faults {
namespace {

// Returns the bits of significand with the hidden one.
int precision_of(bp_dtype dtype) {
  if (dtype == BP_F64) return 53;
  if (dtype == BP_F32) return 24;
  return dtype == BP_F16 ? 11 : 8;
}

// Returns the exponent of the share of the largest result that sums and several steps may be off.
int share_of(bp_dtype dtype) {
  if (dtype == BP_F64) return -20;
  if (dtype == BP_F32) return -10;
  return dtype == BP_F16 ? -6 : -4;
}

}  // namespace

double smallest_normal(bp_dtype dtype) {
  if (dtype == BP_F64) return std::numeric_limits<double>::min();
  return std::ldexp(1, dtype == BP_F16 ? -14 : -126);
}

double largest_number(bp_dtype dtype) {
  if (dtype == BP_F64) return std::numeric_limits<double>::max();
  return std::ldexp(1 - std::ldexp(1, -precision_of(dtype)), dtype == BP_F16 ? 16 : 128);
}

double largest_honest_error(std::string_view error_class, bp_dtype dtype, double right,
                            double scale) {
  const double size = std::max(std::fabs(right), smallest_normal(dtype));
  const bool is_exact = error_class == "E0" || error_class == "E1" || error_class == "R3";
  const bool is_function = error_class == "E1d" || error_class == "E2";
  if (is_exact || is_function) {
    const int precision = precision_of(dtype);
    const double units = is_function && precision > 11 ? 64 : 4;
    return units * std::ldexp(1, std::ilogb(size) + 1 - precision);
  }
  if (error_class == "E2c") scale = size;
  return std::ldexp(std::max(scale, smallest_normal(dtype)), share_of(dtype));
}

}  // namespace bp::faults
