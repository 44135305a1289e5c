// Chooses the kernels that may serve a call.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/host.h"
#include "registry/calls/choices.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Finds the candidates for a call, and remembers them. choose() calls it if nothing is remembered
// for the call. `args` is a frame of at least the row's size. Never returns NULL.
const Choices* choose_anew(Target& target, const OpRow& row, const Key& key, uint64_t hash,
                           const void* args);

// Returns the candidates for the call from which `key` was read. They are remembered from an
// earlier call, or newly found. `args` is a frame of at least the row's size. Never returns NULL.
inline const Choices* choose(Target& target, const OpRow& row, const Key& key, const void* args) {
  const uint64_t hash = key.hash(row.tensor_count);
  const Choices* choices = target.selection.find(key, hash);
  if (choices != nullptr) [[likely]] {
    return choices;
  }
  return choose_anew(target, row, key, hash, args);
}

// Returns why `kernel` does not take this call, or "" if the frame, the layouts and the links fit
// and supports() accepts it.
std::string call_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                         const Key& key, const void* args);

// Returns whether call_refusal() is empty.
bool accepts(const Target& target, const OpRow& row, const bp_kernel& kernel, const Key& key,
             const void* args);

// Returns whether `candidate` may be launched for a call. Its source must be among `sources`, the
// frame must fit, and supports() must accept the call if its answer is not remembered.
inline bool is_taken(const Target& target, const OpRow& row, const Candidate& candidate,
                     bp_kernel_sources sources, const Key& key, const void* args) {
  if ((candidate.source & sources) == 0) return false;
  if (!candidate.asks_supports && frame_size(args) == candidate.kernel->args_size_bytes) {
    return true;
  }
  return accepts(target, row, *candidate.kernel, key, args);
}

// Returns the text of bp_kernel_explain().
std::string explain(Target& target, const OpRow& row, const Key& key, const void* args);

}  // namespace bp::core
