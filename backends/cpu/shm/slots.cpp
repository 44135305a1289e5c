#include "backends/cpu/shm/slots.hpp"

#include <algorithm>

#include "backends/cpu/shm/head.hpp"

namespace bp::shm {
namespace {

// Two lines of the cache, because processors fetch lines in pairs.
constexpr uint64_t kLineBytes = 128;

uint64_t head_bytes_of(uint32_t world_size) {
  const uint64_t bytes = sizeof(Head) + world_size * sizeof(PairCounts);
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

uint64_t slot_bytes_of(uint32_t world_size) {
  return head_bytes_of(world_size) + Slots::kDataBytes;
}

uint64_t rank_bytes_of(uint32_t world_size) {
  return 2 * kLineBytes + Slots::kSlots * slot_bytes_of(world_size);
}

}  // namespace

uint64_t Slots::memory_bytes(uint32_t world_size) { return world_size * rank_bytes_of(world_size); }

Slots::Slots(std::byte* memory, uint32_t rank, uint32_t world_size)
    : memory_(memory),
      rank_(rank),
      world_size_(world_size),
      head_bytes_(head_bytes_of(world_size)) {}

std::byte* Slots::head(uint32_t rank, uint64_t step) const {
  return memory_ + rank * rank_bytes_of(world_size_) + 2 * kLineBytes +
         step % kSlots * slot_bytes_of(world_size_);
}

std::atomic_ref<uint64_t> Slots::counter(uint32_t rank, Counter which) const {
  std::byte* const place = memory_ + rank * rank_bytes_of(world_size_) + which * kLineBytes;
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(place));
}

bool Slots::may_write(uint64_t step) {
  if (step < read_by_all_ + kSlots) return true;
  uint64_t least = UINT64_MAX;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    least = std::min(least, counter(rank, kRead).load(std::memory_order_acquire));
  }
  read_by_all_ = least;
  return step < read_by_all_ + kSlots;
}

}  // namespace bp::shm
