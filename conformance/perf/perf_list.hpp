// The cases of the verb `perf`: the ceilings, then the measured calls.
#pragma once

#include "conformance/case_list.hpp"
#include "conformance/perf/perf_options.hpp"

namespace bp::conformance {

constexpr const char* kPerfPrefix = "perf.";

CaseList perf_cases(const PerfOptions& options);

}  // namespace bp::conformance
