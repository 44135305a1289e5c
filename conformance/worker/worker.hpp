// The worker: the process that loads the backend and runs the cases.
#pragma once

#include <string>

namespace bp::conformance {

// Serves the records of a supervisor until the end of the batch. Returns the exit code of the
// process.
int run_worker(const std::string& setup_json);

}  // namespace bp::conformance
