// The descriptions of the ops of this build, which ops_spec/emit_descriptions.py writes.
#pragma once

#include <span>

#include "backplane/operator.h"

namespace bp::core {

// Returns the descriptions in the order of op_rows().
std::span<const bp_op_desc> descriptions();

}  // namespace bp::core
