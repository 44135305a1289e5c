// What a rank says of its call in the first step of the call.
#pragma once

#include <cstdint>

#include "backplane/shell/group_checks.hpp"

namespace bp::shm {

struct Head {
  CallSignature signature;  // Without what only one pair of ranks knows.
  uint64_t largest_bytes;   // Of the pieces that the rank knows.
};

// What a rank sends to another one in all_to_all, and receives from there. They lie behind the
// head, by rank.
struct PairCounts {
  uint64_t sent, received;
};

}  // namespace bp::shm
