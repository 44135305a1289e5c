// What cases do in processes of their own.
#pragma once

#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/runner/child.hpp"

namespace bp::conformance {

// All of them, by name.
const std::vector<ChildRoutine>& child_routines();

// Runs one on the plugin and device of the case, which ends as the child did.
void run_in_child(Context& t, const char* routine, std::string argument = "", int descriptor = -1,
                  int channel = -1);

void import_and_invert(const ChildTask& task);
void wait_for_shared_event(const ChildTask& task);
void record_shared_event(const ChildTask& task);
void convert_by_blob(const ChildTask& task);
void fork_after_probe(const ChildTask& task);
void reload_many_times(const ChildTask& task);
void lose_and_reset(const ChildTask& task);
void fail_allocations(const ChildTask& task);

}  // namespace bp::conformance
