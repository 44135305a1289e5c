// Whether the results of a call are right, and where they are not.
#pragma once

#include <string>

#include "conformance/cases/engine/op_launch.hpp"

namespace bp::conformance {

struct Verdict {
  std::string cause;  // "" if everything is right; else "values", "canary", "unwritten", ...
  std::string message;
  std::string tag;

  double margin = 0;  // The largest |y - r| by the accepted half-width.
  std::string worst;  // Where it is.
  double bias = 0;    // Mean signed error; with the next, of outputs that are checked for it.
  bool is_biased = false;
  std::string suspicion;  // Right, but only by the bound without statistics; "" else.
  bool is_mistrusted = false;
  double zero_share = 0;
  uint64_t outputs = 0;

  bool is_right() const { return cause.empty(); }
};

// Whether element `index` is what the oracle, the bound and `numerics` allow.
bool is_right(const OutputView& output, const Expected& expected, int64_t index,
              const Numerics& numerics);

// What the outputs must be under what a kernel declares; NULL is the strictest.
struct Expectation {
  Numerics numerics;
  std::vector<Expected> outputs;
};
Expectation expectation(const OpCase& op_case, const CallData& data, const bp_numerics* declared);

// The value and bound of one element, for accept().
Exact exact_at(const Expected& expected, int64_t index);

// Subnormal inputs as a kernel that flushes them sees them.
CallData flushed(CallData data);

// Judges the outputs against the oracle. Of several mistakes it gives the first that explains the
// others: a damaged canary, an unwritten element, a wrong one.
Verdict judge(const OpCase& op_case, const CallData& data, const Observation& seen);

}  // namespace bp::conformance
