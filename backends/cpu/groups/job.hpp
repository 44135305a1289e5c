// A collective that runs over Gloo, and its memory.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "backplane/shell/combine.hpp"
#include "backplane/shell/rank_call.hpp"
#include "backplane/shell/shape.hpp"

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

using ContextPointer = std::shared_ptr<gloo::Context>;
using BufferPointer = std::unique_ptr<gloo::transport::UnboundBuffer>;

struct Job {
  const ContextPointer& context;
  const RankCall& call;
  uint64_t sequence;
  std::byte *send, *receive;

  uint32_t tag() const { return static_cast<uint32_t>(sequence); }
  int root() const { return static_cast<int>(call.root); }
  uint64_t item() const { return static_cast<uint64_t>(dtype_size_bytes(call.dtype)); }
  bool is_root() const { return call.rank == call.root; }
  BufferPointer buffer(std::byte* bytes, uint64_t size_bytes) const {
    return context->createUnboundBuffer(bytes, size_bytes);
  }
};

inline void move_bytes(std::byte* to, const std::byte* from, uint64_t size_bytes) {
  if (to != from && size_bytes != 0) std::memmove(to, from, size_bytes);
}

// Writes what the rank contributes to a reduction. A scaled sum scales it.
inline void contribute(const Job& job, std::byte* to, uint64_t elements) {
  if (job.call.reduction != BP_REDUCTION_SCALED_SUM) {
    return move_bytes(to, job.send, elements * job.item());
  }
  const kernels::Contribution own{job.send, job.call.scale};
  kernels::combine(BP_REDUCTION_SCALED_SUM, job.call.dtype, {&own, 1}, to,
                   static_cast<int64_t>(elements));
}

// Returns what is left to do with what contribute() writes.
inline bp_reduction after_scaling(bp_reduction reduction) {
  return reduction == BP_REDUCTION_SCALED_SUM ? bp_reduction{BP_REDUCTION_SUM} : reduction;
}

// Runs an all_reduce. all_reduce.cpp says which ways it takes.
void all_reduce(const Job& job);

}  // namespace bp::cpu
