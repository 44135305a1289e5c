// The data of test tensors. The fill decides which mistakes a result can show.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {

enum class FillKind {
  kExactDense,   // Non-zero integers in [-high, high]: sums of products are exact.
  kCoord,        // 1 + the row-major number of the element: exact, and shows which element was
                 // read.
  kOneHot,       // 1 where the last coordinate is the permuted first one, else 0.
  kUniform,      // Uniform in [low, high), rounded.
  kSpecial,      // The special values of the dtype, in turn.
  kSpecialSlow,  // As kSpecial, with each value repeated as often as there are special values, so
                 // that all pairs meet.
  kSpecialNth,   // As kSpecial, with each value repeated (number of special values)^low times.
  kSparse,       // Uniform in [low, high), with a NaN, infinity, zero or subnormal here and there.
  kExactWide,    // Odd integers of `high` bits, as far as the dtype holds them exactly.
  kSign,         // 1 and -1.
  kLogUniform,   // Numbers of both signs; the exponent of 2 is uniform in [low, high).
  kAllBits,      // The value whose bits are the row-major number of the element.
  kIndex,        // Integers in [low, high), with repeats.
  kRepeat,       // Few different values, so that extremes are tied.
};

struct Fill {
  FillKind kind = FillKind::kUniform;
  double low = -1;
  double high = 1;
};

// Returns the special values of a dtype: zeros, subnormals, limits, infinities and NaN of a float;
// the limits of an integer.
const std::vector<DoubleDouble>& special_values(bp_dtype dtype);

// The place of an element: its number in row-major order, and the coordinates that kOneHot needs.
struct ElementPlace {
  uint64_t index = 0;
  int64_t first = 0;   // The coordinate on the last axis but one, modulo the extent of the last.
  int64_t last = 0;    // The coordinate on the last axis.
  int64_t extent = 1;  // The extent of the last axis.
};

// Returns one element of tensor number `tensor`. It depends on the arguments alone, so that each
// element can be made alone.
DoubleDouble fill_element(const Fill& fill, bp_dtype dtype, uint64_t key, uint32_t tensor,
                          const ElementPlace& place);

}  // namespace bp::conformance
