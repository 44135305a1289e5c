// Runs op cases: one engine for all ops.
#pragma once

#include "conformance/cases/op_judge.hpp"

namespace bp::conformance {

// The body of an op case.
void run_op_case(Context& t, const OpCase& op_case);

// Why a case fails, found by running it again with one property taken away after the other: what
// passes names the cause. Gives the cause "offset", "broadcast", "stride" or "tail", or that of
// `verdict`.
std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Verdict& verdict);

}  // namespace bp::conformance
