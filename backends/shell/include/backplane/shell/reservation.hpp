// A range of addresses of this process, and the memory that is put behind parts of it.
//
//   address()                                         size_bytes()
//   | mapped, read and write | reserved | mapped, none | reserved |
//
// Sizes and offsets are whole pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backplane/shell/memory_file.hpp"
#include "backplane/virtual_memory.h"

namespace bp {

// Memory without an address. It lives while its handle or a mapped part holds it.
struct PhysicalMemory {
  PhysicalMemory(const char* call, const std::string& kind, uint64_t its_size_bytes)
      : file(call, kind, its_size_bytes), size_bytes(its_size_bytes) {}

  const MemoryFile file;
  const uint64_t size_bytes;
  std::shared_ptr<void> room;  // What the backend takes back when the memory ends, if anything.
};

// Safe from any thread. Functions throw StatusError, whose text begins with `call`.
class Reservation {
 public:
  Reservation(const char* call, uint64_t size_bytes);
  ~Reservation();
  Reservation(const Reservation&) = delete;

  std::byte* address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Puts size_bytes of `memory` behind the range, without access. No part of it may be mapped.
  void map(const char* call, uint64_t offset, uint64_t size_bytes,
           const std::shared_ptr<const PhysicalMemory>& memory, uint64_t memory_offset);

  // All of the range must be mapped; it may be parts of what map() got, and several of them.
  void set_access(const char* call, uint64_t offset, uint64_t size_bytes, bp_access access);
  void unmap(const char* call, uint64_t offset, uint64_t size_bytes);

  // Throws BP_INVALID_ARGUMENT unless every byte is mapped with at least this access.
  void check(const std::string& what, uint64_t offset, uint64_t size_bytes, bp_access access) const;

  // The lowest offset that is mapped; size_bytes() if none is.
  uint64_t first_mapped() const;

 private:
  struct Part {
    uint64_t size_bytes;
    bp_access access;
    std::shared_ptr<const PhysicalMemory> memory;
  };
  using Parts = std::map<uint64_t, Part>;  // By offset; they do not overlap.

  // Called with the mutex.
  uint64_t mapped_end(uint64_t offset, uint64_t end, bp_access access) const;
  void require_mapped(const std::string& what, uint64_t offset, uint64_t size_bytes) const;
  Parts::iterator split(uint64_t offset);

  std::byte* address_ = nullptr;
  const uint64_t size_bytes_;
  mutable std::mutex mutex_;
  Parts parts_;  // Guarded by mutex_.
};

}  // namespace bp
