// Runs calls with a tensor at an offset that the heaps of the device do not allow: each such tensor
// is copied to a place of its own, the op runs there, and outputs are copied back.
#pragma once

#include <string>

#include "backplane/kernel.h"
#include "registry/calls/call.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Returns why no kernel of the device takes the offsets of the call, or "". A kernel of copy takes
// every offset.
std::string offset_refusal(const Target& target, const OpRow& row, const Key& key);

// Returns the kernel that runs an op on copies. All backends share it: bp_launch::next points to
// the bp_target of the launch.
const bp_kernel* realigning(const OpRow& row);

}  // namespace bp::core
