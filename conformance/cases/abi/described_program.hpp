// Programs of one node, whose op was described at run time.
#pragma once

#include <vector>

#include "backplane/compiler.h"
#include "conformance/cases/abi/described_call.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {

class DescribedProgram {
 public:
  explicit DescribedProgram(const DescribedPlan& plan);
  DescribedProgram(const DescribedProgram&) = delete;

  const bp_compile_desc& desc() const { return desc_; }

  // Gives the node the number of another op.
  void set_op(uint32_t op) { node_.op = op; }

  // Launches an executable of the program on the tensors of `call`, and waits.
  bp_status launch(Context& t, const OwnedExecutable& executable, DescribedCall& call) const;

 private:
  const DescribedPlan& plan_;
  BareFrame frame_;
  std::vector<bp_program_value> values_;
  std::vector<uint32_t> names_;  // The value of each tensor.
  bp_program_node node_{};
  bp_program program_{};
  bp_compile_desc desc_{};
};

}  // namespace bp::conformance
