// The list of what a target's caches have done, for bp_memory_snapshot().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backplane/tensor.h"

namespace bp::services {

struct MemoryEvent {
  enum Kind : uint8_t { kAllocate, kFree, kAddSegment, kFreeSegment, kOutOfMemory };

  Kind kind;
  uint64_t time_ns;   // By the clock of the host that never goes back.
  bp_buffer* buffer;  // An address that is not followed.
  uint64_t byte_offset;
  uint64_t size_bytes;  // The size that was asked for.
};

// The latest events, oldest first. It is thread-safe. It allocates only when it is turned on.
class MemoryHistory {
 public:
  // Forgets all events, and from now on keeps the latest `capacity`; 0 turns the history off.
  void keep(uint64_t capacity) {
    const std::lock_guard lock(mutex_);
    std::vector<MemoryEvent> ring;
    ring.reserve(capacity);
    ring_.swap(ring);
    next_ = 0;
    capacity_ = capacity;
    is_on_ = capacity != 0;
  }

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  void add(MemoryEvent event) {
    event.time_ns = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                          std::chrono::nanoseconds(1));
    const std::lock_guard lock(mutex_);
    if (capacity_ == 0) return;
    if (ring_.size() < capacity_) {
      ring_.push_back(event);
    } else {
      ring_[next_] = event;
    }
    next_ = (next_ + 1) % capacity_;
  }

  std::vector<MemoryEvent> events() const {
    const std::lock_guard lock(mutex_);
    std::vector<MemoryEvent> events;
    events.reserve(ring_.size());
    const size_t oldest = ring_.size() < capacity_ ? 0 : next_;
    for (size_t i = 0; i < ring_.size(); ++i) {
      events.push_back(ring_[(oldest + i) % ring_.size()]);
    }
    return events;
  }

 private:
  std::atomic<bool> is_on_ = false;
  mutable std::mutex mutex_;
  // mutex_ guards the members below.
  std::vector<MemoryEvent> ring_;
  size_t next_ = 0;
  size_t capacity_ = 0;
};

// Adds an event if there is a history and it is on.
inline void note(MemoryHistory* history, MemoryEvent::Kind kind, const bp_buffer_ref& ref,
                 uint64_t size_bytes) {
  if (history == nullptr || !history->is_on()) return;
  history->add({kind, 0, ref.buffer, ref.byte_offset, size_bytes});
}

}  // namespace bp::services
