// A number of two doubles, hi + lo with |lo| <= ulp(hi) / 2: 106 significand bits, for the oracles
// of f64 ops.
//
// Sums and products are exact transformations (two-sum by Knuth 1969, two-product by a fused
// multiply-add), so a result is off by a few units of 2^-104. An infinity or NaN stands in hi
// alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace bp::conformance {

struct DoubleDouble {
  double hi = 0;
  double lo = 0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(double value) : hi(value) {}  // NOLINT: every double is one of these.
  constexpr DoubleDouble(double high, double low) : hi(high), lo(low) {}

  // Converts without an error.
  static DoubleDouble from_int64(int64_t value);
};

// Returns the sum of two doubles exactly, unless it overflows.
DoubleDouble two_sum(double a, double b);
// Returns the product of two doubles exactly, unless it overflows or its tail underflows.
DoubleDouble two_product(double a, double b);

DoubleDouble operator-(DoubleDouble a);
DoubleDouble operator+(DoubleDouble a, DoubleDouble b);
DoubleDouble operator-(DoubleDouble a, DoubleDouble b);
DoubleDouble operator*(DoubleDouble a, DoubleDouble b);
DoubleDouble operator/(DoubleDouble a, DoubleDouble b);
bool operator<(DoubleDouble a, DoubleDouble b);
bool operator==(DoubleDouble a, DoubleDouble b);

DoubleDouble abs(DoubleDouble x);
DoubleDouble sqrt(DoubleDouble x);
DoubleDouble exp(DoubleDouble x);
DoubleDouble log(DoubleDouble x);
bool isnan(DoubleDouble x);

// Returns the integer value of `x`, modulo 2^64.
int64_t to_int64(DoubleDouble x);

}  // namespace bp::conformance
