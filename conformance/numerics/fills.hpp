// The data of test tensors: the fill decides what a wrong result looks like.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {

enum class FillKind {
  kExactDense,   // Non-zero integers in [-high, high]: sums of products are exact.
  kCoord,        // 1 + the row-major number of the element: exact, and names what was read.
  kOneHot,       // 1 where the last coordinate is the permuted first one, else 0.
  kUniform,      // Uniform in [low, high), rounded.
  kSpecial,      // The special values of the dtype, in turn.
  kSpecialSlow,  // The same, each repeated as often as there are special values: every pair is met.
  kSpecialNth,   // The same, each repeated (number of special values)^low times.
  kSparse,       // Uniform in [low, high), with a NaN, infinity, zero or subnormal here and there.
  kExactWide,    // Odd integers of `high` bits, as far as the dtype holds them exactly.
  kSign,         // 1 and -1.
  kLogUniform,   // Of both signs, the exponent of 2 uniform in [low, high).
  kAllBits,      // The value whose bits are the row-major number of the element.
  kIndex,        // Integers in [low, high), with repeats.
  kRepeat,       // Few different values, so that extremes are tied.
};

struct Fill {
  FillKind kind = FillKind::kUniform;
  double low = -1;
  double high = 1;
};

// The special values of a dtype: zeros, subnormals, limits, infinities and NaN of a float; limits
// of an integer.
const std::vector<DoubleDouble>& special_values(bp_dtype dtype);

// Where an element stands: its number in row-major order, and what kOneHot needs.
struct ElementPlace {
  uint64_t index = 0;
  int64_t first = 0;   // The coordinate on the last axis but one, modulo the extent of the last.
  int64_t last = 0;    // The coordinate on the last axis.
  int64_t extent = 1;  // The extent of the last axis.
};

// One element of tensor number `tensor`. Depends on nothing else, so that each can be made alone.
DoubleDouble fill_element(const Fill& fill, bp_dtype dtype, uint64_t key, uint32_t tensor,
                          const ElementPlace& place);

}  // namespace bp::conformance
