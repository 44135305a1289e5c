// The floating-point formats of 4, 6 and 8 bits, by a table of the values of their codes. A format
// is defined by its bits, and a number is rounded by a search for the nearest value, so that no
// arithmetic on bits is shared with the kernels under test.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/base.h"

namespace bp::conformance {

// The formats of the OCP specifications for 8 bits ("OFP8") and for blocks ("MX").
struct NarrowFormat {
  uint32_t exponent_bits, fraction_bits;
  int32_t bias;
  bool has_sign;
  enum class End {
    kFinite,    // Every code is a number.
    kNan,       // The code of all ones, behind the sign, is NaN.
    kInfinity,  // The largest exponent has infinity and NaN, as in IEEE 754.
  } end;

  uint32_t bits() const { return (has_sign ? 1 : 0) + exponent_bits + fraction_bits; }
};

// Returns the format of f8e4m3fn, f8e5m2, f8e8m0fnu, f6e2m3, f6e3m2 and f4e2m1; NULL for others.
const NarrowFormat* narrow_format(bp_dtype dtype);

// Returns the values of all codes, in their order.
const std::vector<double>& narrow_values(bp_dtype dtype);

// Returns the code of the nearest value, of two the one with an even code. Beyond the largest
// number, infinity included, it is the code of the largest one. NaN has the code of NaN, or of 0 in
// a format without NaN. A format without a sign has its smallest value for all that is below.
uint32_t narrow_code(bp_dtype dtype, double x);

}  // namespace bp::conformance
