// The families of cases about the runtime's promises: order, failures, threads, loading, guards.
#pragma once

#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

void add_stream_order_cases(std::vector<Case>& cases);
void add_native_stream_cases(std::vector<Case>& cases);
void add_shared_event_cases(std::vector<Case>& cases);
void add_stream_program_cases(std::vector<Case>& cases);
void add_failure_cases(std::vector<Case>& cases);
void add_thread_cases(std::vector<Case>& cases);
void add_thread_handle_cases(std::vector<Case>& cases);
void add_reload_cases(std::vector<Case>& cases);
void add_guard_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
