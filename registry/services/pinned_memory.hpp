// Pinned host memory of one target (pinned.h). Its blocks are those of a Cache of a host heap, in a
// private pool. They are mapped for as long as somebody holds them, and come back only when the
// work that used them has ended, because the host writes to them without a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "registry/services/cache_set.hpp"

namespace bp::services {

// Pinned memory that was given back while a copy still uses it. The callbacks of the copy end the
// loan; they may call neither the backend nor this library, so they cannot record an event.
class Loan {
 public:
  // Says that no other device writes to the memory any more, and that nobody uses it any more.
  void end_writing() { set(is_written_); }
  void end() {
    end_writing();
    set(has_ended_);
  }
  bool has_ended() const { return has_ended_; }
  void wait_for_writing() const { is_written_.wait(false); }
  void wait() const { has_ended_.wait(false); }

 private:
  static void set(std::atomic<bool>& flag) {
    flag = true;
    flag.notify_all();
  }
  std::atomic<bool> is_written_{false}, has_ended_{false};
};

// It is thread-safe, and holds no lock while it calls the backend.
class PinnedMemory {
 public:
  PinnedMemory(const bp_target& target, CacheSet& caches);
  PinnedMemory(const PinnedMemory&) = delete;
  ~PinnedMemory();

  bp_status allocate(uint64_t size_bytes, void** out_memory);
  bp_status record_stream(void* memory, bp_stream* stream);
  bp_status free(void* memory) { return free_behind(memory, nullptr); }

  // Gives memory back. It is used again when `loan` has ended, if it is not NULL.
  bp_status free_behind(void* memory, std::shared_ptr<const Loan> loan);

  bp_status trim();
  bp_cache_statistics statistics() const { return caches_.statistics(pool_); }

  // A range of memory that this object gave.
  struct Place {
    void* memory = nullptr;  // What allocate() gave; NULL for other memory.
    bp_buffer_ref ref{};  // The same range for work of the device; no buffer if that must not use
                          // memory that is mapped.
  };

  // Finds the place of host memory. It is empty for memory of others.
  Place find(const void* begin, uint64_t size_bytes) const;

  // Says that work submitted to `stream` uses `memory`. If no event can be recorded, waits for it.
  void use(void* memory, bp_stream* stream);

  // Returns whether the device can use such memory while it is mapped.
  bool is_direct() const { return is_direct_; }

  // Waits until no other device writes to the memory. A reset, which ends the memory, waits for the
  // work of its own device alone.
  void wait_for_others() const;

  // A reset of the device has ended all memory.
  void forget();

 private:
  struct Piece {
    bp_block* block;
    unsigned char* memory;
    std::vector<bp_event*> events =
        {};                // Behind the work that uses it. The object's lock guards it.
    bool is_lost = false;  // If true, a reset has ended the memory.
    std::shared_ptr<const Loan> loan = nullptr;  // NULL: the events say when its work has ended.
  };
  using Owner = std::shared_ptr<Piece>;

  bp_status take(uint64_t size_bytes, void** out_memory);
  Owner find_piece(const void* memory) const;
  bp_status record(Piece& piece, bp_stream* stream);
  bool has_ended(bp_event* event) const;
  bool has_ended(const Piece& piece, bool waits) const;
  void end(const Piece& piece);
  void sweep(bool waits);

  const bp_target& target_;
  CacheSet& caches_;
  PrivatePool* const pool_;
  bool has_heap_ = false, is_direct_ = false;
  Source source_;
  mutable std::mutex mutex_;
  // mutex_ guards the members below.
  std::map<uintptr_t, Owner> held_;  // By address.
  std::vector<Owner> freed_;         // Their work may not have ended.
};

}  // namespace bp::services
