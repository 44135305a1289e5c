// The cases of the verb `perf`: the ceilings, then the measured calls.
#pragma once

#include "conformance/cases/case_list.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

constexpr const char* kPerfPrefix = "perf.";

CaseList perf_cases(const PerfOptions& options);

}  // namespace bp::conformance
