// The arithmetic that a kernel declares, in the form that the bounds need.
#pragma once

#include "backplane/kernel.h"

namespace bp::conformance {

struct Numerics {
  double unit = 0x1p-24;              // u: the unit roundoff of the compute type.
  double accumulator = 0x1p-24;       // u_acc: the unit roundoff of sums.
  double product = 0;                 // m: the relative error of one product's operands.
  double underflow = 0x1p-149;        // eta: the most that one step may lose to underflow.
  double smallest_normal = 0x1p-126;  // The smallest normal number of the accumulator.
  double largest = 0x1.fffffep+127;   // The largest number of the accumulator.
  bool linear_growth = false;         // Sums err in proportion to K, not to its square root.
  bool faithful = false;              // A result may be either neighbour of the exact value.
  bool flush_inputs = false;
  bool flush_outputs = false;
  bool saturates = false;  // Overflow gives the largest finite value.
  bool relaxed = false;
  bool any_tie = false;  // The index may be that of any of several equal extremes.
};

// Returns the declaration of a kernel for results of `dtype`; NULL is the strictest declaration.
Numerics resolve_numerics(const bp_numerics* declared, bp_dtype dtype);

}  // namespace bp::conformance
