// Runs the body of a perf case: measures a call, and verifies the results of the timed launches.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// Measures the call and leaves these metrics: "median_s", "deviation_s", "runs", "sets",
// "set_bytes", "bytes_read", "bytes_written", "flops", and "changed_s" and "repeated_s" if the call
// has inputs.
//
// A wrong result fails the case with the cause that `run` would give; a cached result fails it with
// the cause "cached".
void run_perf_case(Context& t, const OpCase& op_case, const PerfOptions& options);

}  // namespace bp::conformance
