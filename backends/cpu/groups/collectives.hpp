// The collectives of one rank, on Gloo.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "backends/cpu/groups/waits.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

// What a message is for. Gloo's own collectives use the numbers below 0x40.
enum class Topic : uint8_t {
  kNotice = 0x40,  // A rank leaves, or its group has ended.
  kProbe,          // Nobody sends it.
  kMeet,           // The rank has connected to all others.
  kSplit,
  kSignature,
  kPart,          // Of gather and scatter.
  kAll,           // Elements that an all_reduce will reduce.
  kResult,        // Elements that it has reduced.
  kLetterHeader,  // Of a send, before its elements.
  kLetter,
};

// Returns the slot of messages about a topic. Messages of one slot between two ranks arrive in
// their order.
uint64_t slot_of(Topic topic, uint64_t sequence);

// Runs a call over the connections of `mesh`, and waits until its part of the work is done, or
// until `waits` end. `sequence` is its number among the collectives of its rank, or among the
// letters between two ranks in one direction. The peer of a letter is another rank. Throws
// StatusError, as all functions do that wait.
void run_call(const std::shared_ptr<gloo::Context>& mesh, Waits& waits, const RankCall& call,
              uint64_t sequence);

}  // namespace bp::cpu
