// How wrong a result must be so that no right kernel can give it. The bounds of the suite are not
// asked, because this finds bounds that are too wide.
#pragma once

#include <string_view>

#include "backplane/base.h"

namespace bp::faults {

// Returns the largest error of a result that may still be right, in an op of this error class.
// `scale` is the largest number among the results, and the dtype a float of 16 bits or more.
//
// In the exact classes that is 4 units in the last place, and in those of one division, root or
// function 64 units, or 4 for 16 bits, where the rounding of the result is most of the error. In
// the classes of several steps and of sums it is 2^-10 (f32), 2^-20 (f64), 2^-6 (f16) or 2^-4
// (bf16) of the largest result: more than 2^13 roundings to the nearest f32. A kernel that declares
// a narrow accumulator, or reduced products, may be farther away.
double largest_honest_error(std::string_view error_class, bp_dtype dtype, double right,
                            double scale);

// The smallest positive normal number, and the largest number, of a float of 16 bits or more.
double smallest_normal(bp_dtype dtype);
double largest_number(bp_dtype dtype);

}  // namespace bp::faults
