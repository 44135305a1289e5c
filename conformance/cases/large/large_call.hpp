// Calls with more elements than an oracle can compute in the time of a case.
//
// The data of a large call repeat. The oracle computes a small call, the period, and each axis of
// the large call repeats the same axis of the period:
//
//   large[c0, c1, ...] = period[c0 % p0, c1 % p1, ...]
//
// An op whose elements depend only on elements with the same remainders gives results that repeat
// in the same way, so every element of the large result has a known value and bound. The extents of
// a period are odd, so that no block of a power of two holds whole periods: an element that is read
// or written in the wrong place has another value.
#pragma once

#include <string_view>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// How a tensor of the period becomes one of the large call.
struct Growth {
  Shape shape;  // The extents of the large tensor.

  // For indices into an axis that repeats: each index moves by a multiple of `index_period`, to a
  // place below `index_end` where the same data lie. 0: the indices stay.
  int64_t index_period = 0;
  int64_t index_end = 0;
};

struct LargeCall {
  OpCase period;                // The id of the case is the id of this call.
  std::vector<Growth> growths;  // By tensor of the period.
  Tier tier = Tier::kQuick;
  // BP_LAUNCH_DETERMINISTIC: a second launch has to give the same bits. BP_LAUNCH_STRICT_F32: the
  // products are judged as those of f32, whatever the kernel declares.
  bp_launch_flags flags = 0;
};

// Returns the bytes of all tensors of the call.
uint64_t bytes_of(const LargeCall& call);

// Runs the body of a case.
void run_large_call(Context& t, const LargeCall& call);

}  // namespace bp::conformance
