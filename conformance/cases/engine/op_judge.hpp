// Decides whether the results of a call are right, and finds the wrong elements.
#pragma once

#include <string>

#include "conformance/cases/engine/op_launch.hpp"

namespace bp::conformance {

struct Verdict {
  std::string cause;  // "" if everything is right; else "values", "canary", "unwritten", ...
  std::string message;
  std::string tag;

  std::string value;                 // What the values of the wrong elements have in common.
  std::string place;                 // Where the wrong elements lie.
  size_t wrong_output = 0;           // The output with wrong elements, and the worst of them.
  bool fills_a_tail = false;         // The wrong elements are exactly those of a tail.
  bool has_nonzero_mistake = false;  // A wrong element is not 0.
  int64_t wrong_element = -1;        // -1 if no element was found to be wrong.

  double margin = 0;  // The largest |y - r| divided by the accepted half-width.
  std::string worst;  // The place of the element with this margin.
  double bias = 0;    // The mean signed error, and the next member, are for outputs that are
                      // checked for bias.
  bool is_biased = false;
  std::string suspicion;  // Set if results are right only by the bound without statistics; else "".
  bool is_mistrusted = false;
  double zero_share = 0;
  uint64_t outputs = 0;

  bool is_right() const { return cause.empty(); }
};

// Returns whether the oracle, the bound and `numerics` allow element `index`.
bool is_right(const OutputView& output, const Expected& expected, int64_t index,
              const Numerics& numerics);

// The expected outputs under the declaration of a kernel; NULL is the strictest declaration.
struct Expectation {
  Numerics numerics;
  std::vector<Expected> outputs;
};
Expectation expectation(const OpCase& op_case, const CallData& data, const bp_numerics* declared);

// Returns the value and bound of one element, for accept().
Exact exact_at(const Expected& expected, int64_t index);

// Returns the data with subnormal inputs as zeros, as a kernel that flushes them reads them.
CallData flushed(CallData data);

// Compares the outputs with the oracle. If there are several mistakes, the verdict has the one that
// explains the others: first a damaged canary, then an unwritten element, then a wrong one.
Verdict judge(const OpCase& op_case, const CallData& data, const Observation& seen);

}  // namespace bp::conformance
