// Runs op cases: one engine for all ops.
#pragma once

#include "conformance/cases/engine/op_judge.hpp"

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

// Why a case fails, found by running it again with one property taken away after the other: what
// passes names the cause. Gives the cause "offset", "broadcast", "stride" or "tail", or that of
// `verdict`.
std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Observation& seen, const Verdict& verdict);

}  // namespace bp::conformance
