// The collectives of one rank, on Gloo.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "backends/cpu/groups/agreement.hpp"
#include "backends/cpu/groups/waits.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

// A call over the connections of `mesh`. `sequence` is its number among the collectives of its
// rank, or among the letters between two ranks in one direction. The peer of a letter is another
// rank. Functions throw StatusError.
class BegunCall {
 public:
  // Begins to tell the other ranks what is called, without waiting. What is given must live as long
  // as the call.
  BegunCall(const std::shared_ptr<gloo::Context>& mesh, Waits& waits, const RankCall& call,
            uint64_t sequence);

  // Waits until the part of this rank is done, or until `waits` end.
  void run();

 private:
  const std::shared_ptr<gloo::Context>& mesh_;
  Waits& waits_;
  const ContextPointer context_;
  const OpenedMemory send_, receive_;
  const Job job_;
  std::optional<Agreement> agreement_;  // Not set between two peers.
};

}  // namespace bp::cpu
