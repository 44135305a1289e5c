// A range of addresses of this process, and the memory that is mapped to parts of it.
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

// Memory without an address. It lives as long as its handle or a mapped part.
struct PhysicalMemory {
  PhysicalMemory(const char* call, const std::string& kind, uint64_t its_size_bytes)
      : file(call, kind, its_size_bytes), size_bytes(its_size_bytes) {}

  const MemoryFile file;
  const uint64_t size_bytes;
  std::shared_ptr<void> room;  // The backend's account of the memory, if any; it ends with it.
};

// A range of addresses. Its functions are safe from any thread, and throw StatusError, whose text
// begins with `call`.
class Reservation {
 public:
  Reservation(const char* call, uint64_t size_bytes);
  ~Reservation();
  Reservation(const Reservation&) = delete;

  std::byte* address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Maps size_bytes of `memory` at `offset`, without access. No part of that range may be mapped.
  void map(const char* call, uint64_t offset, uint64_t size_bytes,
           const std::shared_ptr<const PhysicalMemory>& memory, uint64_t memory_offset);

  // Sets the access to a range. All of the range must be mapped; it need not be a range that map()
  // got, and may cover several of them.
  void set_access(const char* call, uint64_t offset, uint64_t size_bytes, bp_access access);
  void unmap(const char* call, uint64_t offset, uint64_t size_bytes);

  // Throws StatusError of BP_INVALID_ARGUMENT unless every byte is mapped with at least this
  // access.
  void check(const std::string& what, uint64_t offset, uint64_t size_bytes, bp_access access) const;

  // Returns the lowest offset that is mapped, or size_bytes() if nothing is mapped.
  uint64_t first_mapped() const;

 private:
  struct Part {
    uint64_t size_bytes;
    bp_access access;
    std::shared_ptr<const PhysicalMemory> memory;
  };
  using Parts = std::map<uint64_t, Part>;  // The key is the offset. Parts do not overlap.

  // The caller of these functions holds the mutex.
  uint64_t mapped_end(uint64_t offset, uint64_t end, bp_access access) const;
  void require_mapped(const std::string& what, uint64_t offset, uint64_t size_bytes) const;
  Parts::iterator split(uint64_t offset);

  std::byte* address_ = nullptr;
  const uint64_t size_bytes_;
  mutable std::mutex mutex_;
  Parts parts_;  // `mutex_` guards it.
};

}  // namespace bp
