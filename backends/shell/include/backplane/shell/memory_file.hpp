// Memory that can be mapped several times, in this process and in others. It is an anonymous file
// of the system, whose name contains its kind and size. The file is sealed: it never grows or
// shrinks, so that no process can take pages away from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backplane/memory.h"

namespace bp {

// Checks what the export `call` was given: only descriptors of files are offered. Throws
// StatusError; for another type it is one of BP_UNSUPPORTED.
void check_export(bp_external_type type, const bp_external_handle* out_handle, const char* call);

// Fills the result of an export with a descriptor, which the caller of the export owns.
void give_descriptor(int descriptor, uint64_t size_bytes, bp_external_handle* out_handle);

// Reads what the import `call` was given. Throws StatusError as check_export() does.
bp_external_handle read_external(const bp_external_handle* handle, const char* call);

// The same for the handle of an object that is no memory. `what` names it, such as "an event".
bp_external_handle read_external_object(const bp_external_handle* handle, const char* call,
                                        const char* what);

// Returns the unit in which memory can be mapped.
uint64_t system_page_bytes();

// Rounds size_bytes up to whole pages, at least one. Saturates at the last whole page of 64 bits.
uint64_t whole_pages(uint64_t size_bytes);

// Owns the descriptor of one file. The file lives until its last descriptor is closed and its last
// mapping has ended.
class MemoryFile {
 public:
  // Makes a file of `size_bytes`, in whole pages. Throws StatusError of BP_OUT_OF_MEMORY, whose
  // text names `call`. The system gives a page its memory when the page is first touched.
  MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes);

  // Duplicates the descriptor of a file that was made with this kind and size, in any process.
  // Throws StatusError of BP_INVALID_ARGUMENT for any other descriptor.
  MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes, int descriptor);

  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }

  // Returns a duplicate of the descriptor, which the caller owns. Throws StatusError.
  int duplicate(const char* call) const;

 private:
  int descriptor_ = -1;
};

// A whole file, mapped into this process.
class Mapping {
 public:
  // Maps the file. Throws StatusError of BP_OUT_OF_MEMORY.
  Mapping(const char* call, const MemoryFile& file, uint64_t size_bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;

  std::byte* address() const { return address_; }

 private:
  std::byte* address_ = nullptr;
  uint64_t mapped_bytes_;
};

}  // namespace bp
