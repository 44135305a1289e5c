// Addresses and memory apart: what the handles of virtual_memory.h are on this device.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/sim/pages.hpp"
#include "backplane/shell/reservation.hpp"
#include "backplane/shell/virtual_memory.hpp"

namespace bp::sim {

class Device;

// A reserved range, whose mapped parts are out of the host's reach unless work has opened them.
class RangeMemory final : public Memory {
 public:
  RangeMemory(const Place& place, uint64_t size_bytes);
  ~RangeMemory() override;

  void check(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
             Access access) const override;
  void open(uint64_t byte_offset, uint64_t size_bytes, Access access) override;
  void close(Access access) override;
  void discard() override;

  // What the table of virtual memory asks of a range: see Reservation.
  void map(const char* call, uint64_t byte_offset, uint64_t size_bytes,
           std::shared_ptr<const PhysicalMemory> memory, uint64_t memory_offset);
  void set_access(const char* call, uint64_t byte_offset, uint64_t size_bytes, bp_access access);
  void unmap(const char* call, uint64_t byte_offset, uint64_t size_bytes);
  uint64_t first_mapped() const;

 private:
  void check_locked(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
                    Access access) const;
  void require_alive() const;
  void set_protection(uint64_t begin, uint64_t end, int protection);
  void shut();

  const std::shared_ptr<Card> card_;
  const uint64_t generation_;
  const bool is_protected_;

  mutable std::mutex mutex_;                  // Guards what follows.
  std::unique_ptr<Reservation> reservation_;  // NULL once it has ended.
  uint32_t readers_ = 0, writers_ = 0;
  uint64_t open_begin_ = 0, open_end_ = 0;  // Whole pages, of which some may be open.
};

// What a bp_physical_memory* points to.
struct PhysicalHandle : MemoryOwner {
  Device* device;
  uint64_t generation;
  std::shared_ptr<Room> room;  // Ends with the memory, or with a reset of the device.
};

}  // namespace bp::sim
