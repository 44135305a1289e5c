// Runs op cases, with one engine for all ops.
#pragma once

#include "conformance/cases/engine/op_judge.hpp"

namespace bp::conformance {

// Runs the body of an op case.
void run_op_case(Context& t, const OpCase& op_case);

// Returns whether the device has what the tensors of the case need.
bool is_listed(const Context& t, const OpCase& op_case);

// Ends the case as NotSupported unless is_listed().
void require_listed(Context& t, const OpCase& op_case);

// Returns what a kernel of the backend gives for the call. Ends the case as NotSupported if the
// backend has no kernel for it, and as a failure if the launch fails.
Observation observe_native(Context& t, const OpCase& op_case, const CallData& data,
                           const Variant& variant = {});

// Finds the cause of a failure. It runs the case again with one property removed after the other:
// if the case then passes, that property is the cause. Returns "thread", "offset", "broadcast",
// "stride" or "tail", or the cause of `verdict`. If the same call passes when it is launched again,
// it returns "intermittent", or "stale" if a launch on other data then gives results of that call.
std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Observation& seen, const Verdict& verdict);

}  // namespace bp::conformance
