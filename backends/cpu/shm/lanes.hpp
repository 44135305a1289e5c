// The shared memory of a group as one rank sees it.
//
// Calls of a group may reach their streams in another order than that of their submissions, and on
// other ranks in another one again. So there are several lanes, each with slots of its own, and the
// calls take them in turn: a call waits only for the one kLanes calls before it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/cpu/shm/segment.hpp"
#include "backends/cpu/shm/slots.hpp"
#include "backplane/base.h"

namespace bp::shm {

class Lane {
 public:
  Lane(std::byte* memory, uint32_t rank, uint32_t world_size) : slots_(memory, rank, world_size) {}

  // Returns whether a call that has so many calls of its lane before it may begin.
  bool may_begin(uint64_t calls_before) const { return calls_over_ == calls_before; }

  // Says that a call is over. The next one may be on another thread.
  void end_call() { ++calls_over_; }

  Slots& slots() { return slots_; }

 private:
  Slots slots_;
  std::atomic<uint64_t> calls_over_ = 0;
};

class Lanes {
 public:
  static constexpr uint64_t kLanes = 4;

  static uint64_t memory_bytes(uint32_t world_size) {
    return kHeadBytes + kLanes * Slots::memory_bytes(world_size);
  }

  Lanes(std::unique_ptr<Mapping> memory, uint32_t rank, uint32_t world_size);

  // The lane of the collective with number `sequence`, which has calls_before() it there.
  Lane& of(uint64_t sequence) const { return *lanes_[sequence % kLanes]; }
  static uint64_t calls_before(uint64_t sequence) { return sequence / kLanes; }

  // Says to all ranks that the group has failed. Then no call begins here any more: a rank that is
  // late would find what the others had posted before they gave up, and call that a success.
  void end() { ended().store(1, std::memory_order_release); }
  bool has_ended() const { return ended().load(std::memory_order_acquire) != 0; }

 private:
  static constexpr uint64_t kHeadBytes = 128;  // The mark of end(), in lines of its own.

  std::atomic_ref<uint64_t> ended() const;

  const std::unique_ptr<Mapping> memory_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// The option of a group that forbids such memory: "0", or "1", which is the default.
constexpr std::string_view kOption = "shared_memory";

// Reads its value. Throws StatusError.
bool read_option(std::string_view value);

// Returns the lanes of a new group, or nothing on all ranks, as share() does. It sets the size of
// the plan.
std::unique_ptr<Lanes> share_lanes(SegmentPlan plan);

// Tells the log of the host that the ranks of a new group of `table` share no memory, so that
// people know why its collectives take longer.
void log_absence(const bp_host& host, const char* table);

}  // namespace bp::shm
