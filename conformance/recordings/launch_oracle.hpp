// Whether what a launch gave is right, by the oracles of the op cases.
//
// The suite has oracles for calls of its own. One that is a plain function of the data follows any
// shape and attribute: a recorded launch takes the place of such a case, with its own data.
#pragma once

#include <map>
#include <vector>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/recordings/launch_line.hpp"

namespace bp::conformance {

class LaunchOracles {
 public:
  LaunchOracles();

  // The case in whose place the launch can be judged; nullopt if there is none.
  std::optional<OpCase> case_of(const RecordedLaunch& launch) const;

 private:
  std::map<uint32_t, std::vector<OpCase>> by_op_;
};

// The elements of one tensor, in row-major order.
using Elements = std::vector<DoubleDouble>;

// Judges what `kernel` gave; the tensors are those of `op_case`, the data theirs.
Verdict judge_launch(const OpCase& op_case, const std::vector<Elements>& inputs,
                     std::vector<OutputView> outputs, const bp_kernel* kernel);

}  // namespace bp::conformance
