// The choice of kernels for a call.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/host.h"
#include "registry/calls/choices.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// The candidates for a call of which nothing is remembered: choose() looks there first. `args` is a
// frame of at least the row's size. Never NULL.
const Choices* choose_anew(Target& target, const OpRow& row, const Key& key, uint64_t hash,
                           const void* args);

// The candidates for the call that `key` was read from, remembered or newly found. `args` is a
// frame of at least the row's size. Never NULL.
inline const Choices* choose(Target& target, const OpRow& row, const Key& key, const void* args) {
  const uint64_t hash = key.hash(row.tensor_count);
  const Choices* choices = target.selection.find(key, hash);
  if (choices != nullptr) [[likely]] {
    return choices;
  }
  return choose_anew(target, row, key, hash, args);
}

// Why `kernel` does not take this very call; "" if its frame fits, and supports() agrees.
std::string call_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                         bp_launch_flags flags, const void* args);

// Whether call_refusal() is empty.
bool accepts(const Target& target, const OpRow& row, const bp_kernel& kernel, bp_launch_flags flags,
             const void* args);

// Whether `candidate` may be tried for a call: its source is among `sources`, its frame fits, and
// supports() agrees where it has to be asked.
inline bool is_taken(const Target& target, const OpRow& row, const Candidate& candidate,
                     bp_kernel_sources sources, bp_launch_flags flags, const void* args) {
  if ((candidate.source & sources) == 0) return false;
  if (!candidate.asks_supports && frame_size(args) == candidate.kernel->args_size_bytes) {
    return true;
  }
  return accepts(target, row, *candidate.kernel, flags, args);
}

// The text of bp_kernel_explain().
std::string explain(Target& target, const OpRow& row, const Key& key, const void* args);

}  // namespace bp::core
