// The body of a perf case: measures a call, and verifies what the timed launches gave.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// Leaves its figures as metrics: "median_s", "deviation_s", "runs", "sets", "set_bytes",
// "bytes_read", "bytes_written", "flops", and "changed_s" and "repeated_s" where the call has
// inputs.
//
// Wrong results fail with the cause of the judge of `run`, kept results with "cached".
void run_perf_case(Context& t, const OpCase& op_case, const PerfOptions& options);

}  // namespace bp::conformance
