// The cost model of an op: what a call has to move and to compute at least.
//
//   bytes read      each distinct element of each input once, in its dtype: a broadcast axis counts
//                   as one element. A tensor that is read by index counts at most as many elements
//                   as there are results.
//   bytes written   each element of each output once. An inout is read and written.
//   bytes updated   the bytes of inouts, which count as read and as written: memory that is written
//                   where it was read goes at another rate than a copy.
//   flops           what `cost` of the op's entry in ops_spec says: a product has two for each
//                   multiply-add. An op without `cost` has 0 flops, so memory is its roof.
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
