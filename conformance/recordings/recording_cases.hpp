// A recording as a list of cases: one for each launch, and one for each copy to the host.
#pragma once

#include "conformance/cases/case_list.hpp"
#include "conformance/runner/recording_source.hpp"

namespace bp::conformance {

// Returns the cases in the order of the recording. A case runs the recording up to its own line. In
// one process, each case continues where the one before it ended. Throws UsageError if the
// recording cannot be played.
CaseList recording_cases(const RecordingSource& source);

}  // namespace bp::conformance
