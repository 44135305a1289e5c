// Runs ops that move whole rows of packed elements, such as i4, as the same ops on bytes.
//
// An element of 2, 4 or 6 bits has no address, but a row of them has one if it begins and ends at
// whole bytes and has no gaps. Several of the last axes may form one row. No element is copied on
// the way.
#pragma once

#include <string>

#include "backplane/kernel.h"
#include "registry/calls/call.hpp"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Returns whether several elements share a byte.
bool is_packed(bp_dtype dtype);

// Returns why the host does not run the call by the kernel below, or "" if it does. supports() of
// the kernel judges the places of the elements.
std::string by_bytes_refusal(const OpRow& row, const Key& key);

// Returns the kernel that runs an op on bytes. All backends share it: bp_launch::next points to the
// bp_target of the launch.
const bp_kernel* by_bytes(const OpRow& row);

}  // namespace bp::core
