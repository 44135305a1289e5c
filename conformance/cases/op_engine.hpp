// Runs op cases: one engine for all ops.
#pragma once

#include "conformance/cases/op_judge.hpp"

namespace bp::conformance {

// The body of an op case.
void run_op_case(Context& t, const OpCase& op_case);

// Whether the device has what the tensors of the case need.
bool is_listed(const Context& t, const OpCase& op_case);

// Ends the case as NotSupported if it does not.
void require_listed(Context& t, const OpCase& op_case);

// What a kernel of the backend gives for the call. Ends the case as NotSupported if it has none,
// and as a failure if the launch fails.
Observation observe_native(Context& t, const OpCase& op_case, const CallData& data);

// Adds the cases about the kernels of each op in `rows`: what they say to unknown flags and of
// tensors without memory.
void add_kernel_rules(std::vector<Case>& cases, const std::vector<OpCase>& rows, const char* group);

// Adds a case for each op in `rows` about launches with plans.
void add_plan_rule(std::vector<Case>& cases, const std::vector<OpCase>& rows, const char* group);

// Adds a case for each op in `rows` about launches between pages without access.
void add_edge_rule(std::vector<Case>& cases, const std::vector<OpCase>& rows, const char* group);

// Adds a case for each op in `rows` about captured launches.
void add_graph_rule(std::vector<Case>& cases, const std::vector<OpCase>& rows, const char* group);

// Why a case fails, found by running it again with one property taken away after the other: what
// passes names the cause. Gives the cause "offset", "broadcast", "stride" or "tail", or that of
// `verdict`.
std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Observation& seen, const Verdict& verdict);

}  // namespace bp::conformance
