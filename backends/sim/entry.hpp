// What every entry of the tables begins with.
#pragma once

#include <utility>

#include "backends/sim/backend.hpp"
#include "backplane/shell/entry.hpp"

namespace bp::sim {

using bp::refuse;
using bp::require;

// Runs body(const Instance&), which returns a status or throws, for an entry of a table.
template <typename Body>
bp_status entry(void* self, Body&& body) {
  return bp::entry<Instance>(self, std::forward<Body>(body));
}

}  // namespace bp::sim
