// How ranks hand each other data through memory that they share.
//
// All ranks of a group take the same steps in one order. In a step each rank writes into a slot of
// its own, posts it, and reads the slots of the others. A slot is written again when all ranks have
// read what it had. So nothing is locked, and a rank that goes ahead is stopped after kSlots steps.
//
//   memory of a rank:  posted | read | slot 0 | slot 1 | ...       slot: head | data
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bp::shm {

class Slots {
 public:
  static constexpr uint64_t kSlots = 4;
  static constexpr uint64_t kDataBytes = 64 << 10;  // Of a slot. Both ends' slots fit into caches.

  // Returns the bytes of the memory of a group, which must be zeros at first.
  static uint64_t memory_bytes(uint32_t world_size);

  // The slots as `rank` sees them. The memory must live as long.
  Slots(std::byte* memory, uint32_t rank, uint32_t world_size);

  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }

  // The slot of a rank in a step. The head has head_bytes().
  std::byte* head(uint32_t rank, uint64_t step) const;
  std::byte* data(uint32_t rank, uint64_t step) const { return head(rank, step) + head_bytes_; }

  // Returns whether all ranks have read what the slot of `step` had before.
  bool may_write(uint64_t step);

  // Says that this rank has written its slot of `step`, and that it has read those of all ranks.
  void post(uint64_t step) { counter(rank_, kPosted).store(step + 1, std::memory_order_release); }
  void release(uint64_t step) { counter(rank_, kRead).store(step + 1, std::memory_order_release); }

  bool has_posted(uint32_t rank, uint64_t step) const {
    return counter(rank, kPosted).load(std::memory_order_acquire) > step;
  }

  // The step with which the next call of this rank begins.
  uint64_t next_step = 0;

 private:
  enum Counter : uint64_t { kPosted, kRead };

  std::atomic_ref<uint64_t> counter(uint32_t rank, Counter which) const;

  std::byte* const memory_;
  const uint32_t rank_, world_size_;
  const uint64_t head_bytes_;
  uint64_t read_by_all_ = 0;  // The steps that all ranks have surely read.
};

}  // namespace bp::shm
