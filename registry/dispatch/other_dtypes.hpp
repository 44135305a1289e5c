// Runs calls in dtypes that no kernel of the device takes, by kernels for other dtypes.
//
// An op that moves elements sees only their width, so the call runs on integers that are as wide,
// in the memory of the caller; an element of 16 bytes is moved as two halves. An op that computes
// with integers of 8 or 16 bits, or that orders bools, runs in i32: its inputs are cast, and its
// results are cast back. Integers wrap in a cast, so the results are those that a kernel for the
// dtype would give.
#pragma once

#include <string>

#include "backplane/kernel.h"
#include "registry/calls/call.hpp"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Returns whether the op moves elements and never looks at their values.
bool moves_elements(const OpRow& row);

// Return why the host does not run the call by the kernel of the same name below, or "" if it does.
std::string by_width_refusal(const OpRow& row, const Key& key);
std::string in_i32_refusal(const OpRow& row, const Key& key);

// Return the kernels that run an op by width, or in i32. All backends share them: bp_launch::next
// points to the bp_target of the launch.
const bp_kernel* by_width(const OpRow& row);
const bp_kernel* in_i32(const OpRow& row);

}  // namespace bp::core
