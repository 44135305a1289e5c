// Device memory: whole pages of the host that nobody reaches unless work has opened them.
//
//   [ guard page ][ size_bytes | slack, with a canary ][ guard page ]
//                 ^ address()
//
// An access of the host, or of work to memory that is not its own, faults where it happens. The
// slack fills the last page; what is written there is found when the memory is freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/sim/card.hpp"

namespace bp::sim {

enum class Access : uint8_t { kRead, kWrite };

class Pages {
 public:
  struct Place {
    std::shared_ptr<Card> card;
    size_t heap;
    uint64_t capacity_bytes;
    bool is_protected;
  };

  // Throws StatusError of BP_OUT_OF_MEMORY if the heap or the system has no room.
  static std::shared_ptr<Pages> allocate(Place place, uint64_t size_bytes);

  Pages(Place place, uint64_t size_bytes);  // For allocate(), which finishes it.
  ~Pages();
  Pages(const Pages&) = delete;

  std::byte* address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Lets this process read, or read and write, until close() was called as often. Throws
  // StatusError if the memory does not exist any more, or not yet.
  void open(Access access);
  void close(Access access);

  // Memory that is ordered by a stream does not exist before begin().
  void make_unborn() { is_born_ = false; }
  void begin() { is_born_ = true; }

  // Ends the memory: its room is free again, and open() fails.
  void discard();

  // How many bytes of the slack were overwritten, and the first of them, counted from address().
  struct Damage {
    uint64_t count = 0, first_byte = 0;
  };
  Damage damage();

 private:
  uint64_t data_bytes() const { return total_bytes_ - 2 * page_bytes_; }
  uint64_t slack_bytes() const { return data_bytes() - size_bytes_; }
  bool protect();
  void unmap();

  const Place place_;
  const uint64_t size_bytes_, page_bytes_, total_bytes_;
  std::byte* base_ = nullptr;
  std::byte* address_ = nullptr;
  std::atomic<bool> is_born_ = true;

  std::mutex mutex_;  // Guards what follows.
  uint32_t readers_ = 0, writers_ = 0;
  int protection_;
  bool is_discarded_ = false, is_mapped_ = true;
};

// Memory that work touches: a range of it.
struct Use {
  std::shared_ptr<Pages> pages;
  uint64_t byte_offset = 0, size_bytes = 0;
  Access access = Access::kRead;

  std::byte* address() const { return pages->address() + byte_offset; }
};

}  // namespace bp::sim
