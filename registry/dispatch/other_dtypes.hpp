// Runs calls in dtypes that no kernel of the device takes, by kernels for other dtypes.
//
// An op that moves elements sees only their width, so the call runs on integers that are as wide,
// in the memory of the caller; an element of 16 bytes is moved as two halves. An op that computes
// with integers of 8 or 16 bits, or that orders bools, runs in i32: its inputs are cast, and its
// results are cast back. Integers wrap in a cast, so the results are those that a kernel for the
// dtype would give. A rate or scale in a tensor of f32 is cast to f64, which holds it.
#pragma once

#include <string>

#include "backplane/kernel.h"
#include "registry/calls/call.hpp"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Return why the host does not run the call by the kernel of the same name below, or "" if it does.
std::string by_width_refusal(const OpRow& row, const Key& key);
std::string in_i32_refusal(const OpRow& row, const Key& key);
std::string cast_scalars_refusal(const OpRow& row, const Key& key);

// Return the kernels that run an op by width, in i32, or with other dtypes of its scalars. All
// backends share them: bp_launch::next points to the bp_target of the launch.
const bp_kernel* by_width(const OpRow& row);
const bp_kernel* in_i32(const OpRow& row);
const bp_kernel* with_cast_scalars(const OpRow& row);

}  // namespace bp::core
