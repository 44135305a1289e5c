// Decides whether the results of a recorded launch are right, by the oracles of the op cases.
//
// The suite has oracles for its own calls. An oracle that is a plain function of the data works for
// any shape and attribute: a recorded launch then replaces the call of such a case, with its own
// data.
#pragma once

#include <map>
#include <vector>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/recordings/launch_line.hpp"

namespace bp::conformance {

class LaunchOracles {
 public:
  LaunchOracles();

  // Returns the case whose oracle fits the launch; nullopt if there is none.
  std::optional<OpCase> case_of(const RecordedLaunch& launch) const;

 private:
  std::map<uint32_t, std::vector<OpCase>> by_op_;
};

// Those of this build, made when they are first asked for.
const LaunchOracles& launch_oracles();

// The elements of one tensor, in row-major order.
using Elements = std::vector<DoubleDouble>;

// Judges the results of `kernel`. The tensors are those of `op_case`, with their data.
Verdict judge_launch(const OpCase& op_case, const std::vector<Elements>& inputs,
                     std::vector<OutputView> outputs, const bp_kernel* kernel);

}  // namespace bp::conformance
