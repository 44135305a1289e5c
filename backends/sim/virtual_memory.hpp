// Addresses and memory that are allocated separately: the handles of virtual_memory.h on this
// device.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/sim/pages.hpp"
#include "backplane/shell/reservation.hpp"
#include "backplane/shell/virtual_memory.hpp"

namespace bp::sim {

class Device;

// A reserved range. The host cannot access its mapped parts unless work has opened them.
class RangeMemory final : public Memory {
 public:
  RangeMemory(const Place& place, uint64_t size_bytes);
  ~RangeMemory() override;

  void check(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
             Access access) const override;
  void open(uint64_t byte_offset, uint64_t size_bytes, Access access) override;
  void close(Access access) override;
  void discard() override;

  // The functions of a range that the table of virtual memory calls; Reservation describes them.
  void map(const char* call, uint64_t byte_offset, uint64_t size_bytes,
           const std::shared_ptr<const PhysicalMemory>& memory, uint64_t memory_offset);
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

  mutable std::mutex mutex_;                  // It guards the members below.
  std::unique_ptr<Reservation> reservation_;  // NULL once the range has ended.
  uint32_t readers_ = 0, writers_ = 0;
  uint64_t open_begin_ = 0, open_end_ = 0;  // The pages that may be open.
};

// The object that a bp_physical_memory* points to.
struct PhysicalHandle : MemoryOwner {
  Device* device;
  uint64_t generation;
  std::shared_ptr<Room> room;  // It ends with the memory, or when the device is reset.
};

}  // namespace bp::sim
