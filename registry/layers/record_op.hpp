// The descriptions of ops in a recording.
#pragma once

#include "registry/calls/op_rows.hpp"
#include "registry/layers/recording.hpp"

namespace bp::layers {

// Returns the description of an op that was described at run time, so that a replay in another
// process knows its frame. conformance/recordings/op_line.cpp reads it.
Json op_json(const core::OpRow& row);

}  // namespace bp::layers
