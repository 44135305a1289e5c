// A recording as a list of cases: one for each launch, and one for each copy to the host.
#pragma once

#include "conformance/cases/case_list.hpp"
#include "conformance/runner/recording_source.hpp"

namespace bp::conformance {

// In the order of the recording, which a case runs up to its own line: one after the other in one
// process, each runs what the one before has left. Throws UsageError where the recording cannot be
// played.
CaseList recording_cases(const RecordingSource& source);

}  // namespace bp::conformance
