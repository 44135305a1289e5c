// What a call has to move and to compute at least: the cost model of its op.
//
//   bytes read      each distinct element of each input once, in its dtype: a broadcast axis counts
//                   as one element. What is looked up by index counts at most as often as there are
//                   results.
//   bytes written   each element of each output once. An inout is read and written.
//   bytes updated   those of inouts, which count on both sides: memory that is written where it was
//                   read goes at another rate than a copy.
//   flops           what `cost` of the entry in ops_spec says: of a product, two for each
//                   multiply-add. An op without it has 0 flops: its roof is memory.
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
