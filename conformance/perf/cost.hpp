// What a call has to move and to compute at least: the cost model of its op.
//
//   bytes read      each distinct element of each input once, in its dtype: a broadcast axis counts
//                   as one element. What is looked up by index counts at most as often as there are
//                   results.
//   bytes written   each element of each output once. An inout is read and written.
//   bytes updated   those of inouts, which count on both sides: memory that is written where it was
//                   read goes at another rate than a copy.
//   flops           of ops that are products, two for each multiply-add:
//     matmul, linear                 2 |y| K
//     convolution and its gradients  2 |y| (C / groups) (taps of the window), padding included
//     sdpa                           2 P (D + V), with P the pairs of a query and a key that it
//     sees sdpa_backward                  2 P (3 D + 2 V): the scores once more, and four products
//
// All other ops are counted as 0 flops: their roof is memory.
#pragma once

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct Cost {
  double bytes_read = 0;
  double bytes_written = 0;
  double bytes_updated = 0;
  double flops = 0;
};

Cost cost_of(const OpCase& op_case);

}  // namespace bp::conformance
