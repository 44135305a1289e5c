// Memory that can be mapped at several places, of this process and of others: an anonymous file of
// the system, whose name says what it is. Such a file is sealed: it never grows or shrinks, so that
// no process can take pages away from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bp {

// The unit of what can be mapped.
uint64_t system_page_bytes();

// size_bytes, up to whole pages; at least one. Saturates at the last whole page of 64 bits.
uint64_t whole_pages(uint64_t size_bytes);

// Owns the descriptor of one file. It lives until the last descriptor and mapping of it have ended.
class MemoryFile {
 public:
  // Makes a file of `size_bytes`, in whole pages. Throws StatusError of BP_OUT_OF_MEMORY, which
  // names `call`. Pages take memory when they are touched.
  MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes);

  // Duplicates the descriptor of a file that was made with this kind and size, in any process.
  // Throws StatusError of BP_INVALID_ARGUMENT for any other.
  MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes, int descriptor);

  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }

  // A descriptor of its own for somebody else. Throws StatusError.
  int duplicate(const char* call) const;

 private:
  int descriptor_ = -1;
};

// A whole file as memory of this process.
class Mapping {
 public:
  // Throws StatusError of BP_OUT_OF_MEMORY.
  Mapping(const char* call, const MemoryFile& file, uint64_t size_bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;

  std::byte* address() const { return address_; }

 private:
  std::byte* address_ = nullptr;
  uint64_t mapped_bytes_;
};

}  // namespace bp
