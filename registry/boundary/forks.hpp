// Tells what a process has made itself from what it has from the parent that forked it.
#pragma once

#include <cstdint>

namespace bp {

// How many forks lie between the process that loaded this library and the process that asks. It
// changes only in the child of a fork, before anything else runs there.
extern uint32_t fork_count;

}  // namespace bp
