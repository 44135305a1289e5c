// The ops that a recording describes: those that a backend or a program described at run time.
#pragma once

#include <nlohmann/json.hpp>

#include "backplane/host.h"

namespace bp::conformance {

// Describes ops to this host for as long as the object lives, so that frames of them can be read
// before the backend that has their kernels is loaded.
class RecordedOps {
 public:
  RecordedOps();
  ~RecordedOps();
  RecordedOps(const RecordedOps&) = delete;
  RecordedOps& operator=(const RecordedOps&) = delete;

  // Adds the op of a line "op.describe". Throws UsageError if the host rejects the description.
  void add(const nlohmann::json& line);

 private:
  bp_registry* registry_ = nullptr;
};

}  // namespace bp::conformance
