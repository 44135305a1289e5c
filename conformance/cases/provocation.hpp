// Work that fails on the device, after the call that submitted it has returned BP_OK.
#pragma once

#include <memory>
#include <vector>

#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {

// One way to make work fail.
class Provocation {
 public:
  virtual ~Provocation() = default;

  // Submits it. What `stream` then has is failure().
  virtual void submit(bp_stream* stream) = 0;

  // For people: "an index out of range".
  virtual const char* name() const = 0;

  // Whether what is queued behind it does not run either.
  virtual bool stops_the_queue() const { return false; }

  bp_status failure() const { return failure_; }

 protected:
  bp_status failure_ = BP_OK;
};

// Each way that the backend offers: an index out of range, which the spec of gather makes a failure
// of the stream, and the orders of the extension bp.test.fault. Ends the case as NotSupported where
// there is none.
std::vector<std::unique_ptr<Provocation>> provocations(Context& t);

}  // namespace bp::conformance
