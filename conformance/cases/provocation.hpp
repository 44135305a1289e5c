// Work that fails on the device, after the call that submitted it has returned BP_OK.
#pragma once

#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {

// An index out of range, which the spec of gather makes a failure of the stream.
class Provocation {
 public:
  // Tries it on a stream of its own. Ends the case as NotSupported where the backend cannot be made
  // to fail.
  explicit Provocation(Context& t);

  // Submits it. What `stream` then has is failure().
  void submit(bp_stream* stream);

  bp_status failure() const { return failure_; }

 private:
  bp_status launch(bp_stream* stream);

  Context& context_;
  OwnedBuffer source_, indices_, result_;
  bp_status failure_ = BP_OK;
};

}  // namespace bp::conformance
