// The table of virtual memory of a backend whose ranges are addresses of this process; it uses
// reservation.hpp. `Backend` has what differs between backends: a type Range, with the functions of
// Reservation that are called here, and static functions. These throw StatusError, whose text
// begins with `call`:
//
//   const bp_host& host(void* self);
//   void check_heap(void* self, bp_device* device, uint64_t heap_index, const char* call);
//   void check_reach(void* self, bp_buffer* range, bp_device* device);
//   void check_device(void* self, bp_device* device, const char* call);
//   void check_range(void* self, bp_buffer* range, const char* call);
//   bool is_dead_range(void* self, bp_buffer* range);      optional
//   void check_memory(void* self, MemoryOwner* memory, const char* call);
//   bp_buffer* add_range(void* self, bp_device* device, uint64_t size_bytes);
//   Range* range(void* self, bp_buffer* buffer);
//   void remove_range(void* self, bp_buffer* buffer);
//   MemoryOwner* add_memory(void* self, bp_device* device, uint64_t heap_index,
//                           uint64_t size_bytes);
//   void remove_memory(void* self, MemoryOwner* memory);
//
// check_reach() refuses a set_access() for a device that cannot reach the range. check_range() and
// check_memory() refuse dead handles, if the backend has such handles; unmap() of a dead range does
// nothing. range() returns NULL unless the buffer is a range.
#pragma once

#include <memory>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/reservation.hpp"
#include "backplane/virtual_memory.h"

namespace bp {

// The object that a bp_physical_memory* points to.
struct MemoryOwner {
  static constexpr uint32_t kMagic = 0x70687973;
  uint32_t magic = kMagic;
  std::shared_ptr<const PhysicalMemory> memory;
};

// Returns the memory behind a handle, or NULL if no backend with this table made the handle.
inline MemoryOwner* memory_owner(bp_physical_memory* handle) {
  auto* const owner = reinterpret_cast<MemoryOwner*>(handle);
  return owner != nullptr && owner->magic == MemoryOwner::kMagic ? owner : nullptr;
}

template <typename Backend>
class VirtualMemory {
 public:
  // Returns the table without its `self`.
  static constexpr bp_virtual_memory_ops table() {
    return {.struct_size = sizeof(bp_virtual_memory_ops),
            .struct_type = BP_STRUCT_VIRTUAL_MEMORY_OPS,
            .granularity = Entry<granularity>::call,
            .reserve = Entry<reserve>::call,
            .create = Entry<create>::call,
            .map = Entry<map>::call,
            .set_access = Entry<set_access>::call,
            .unmap = Entry<unmap>::call,
            .release_memory = Entry<release_memory>::call,
            .release = Entry<release>::call};
  }

 private:
  using Range = typename Backend::Range;

  // Makes an entry of the table from a function that throws.
  template <auto kBody>
  struct Entry;
  template <typename... Arguments, bp_status (*kBody)(void*, Arguments...)>
  struct Entry<kBody> {
    static bp_status call(void* self, Arguments... arguments) {
      return guarded(Backend::host(self), [&] { return kBody(self, arguments...); });
    }
  };

  [[noreturn]] static void refuse(const std::string& text) {
    throw StatusError(BP_INVALID_ARGUMENT, text);
  }

  static void check_units(const std::string& what, uint64_t value) {
    if (value % system_page_bytes() == 0) return;
    refuse(what + " is " + std::to_string(value) + "; multiples of " +
           std::to_string(system_page_bytes()) + " are allowed");
  }

  static void check_size(const std::string& what, uint64_t size_bytes) {
    check_units(what, size_bytes);
    if (size_bytes == 0) {
      refuse(what + " is 0; " + std::to_string(system_page_bytes()) + " or more is allowed");
    }
  }

  // Returns the reserved range that `range` lies in. Throws StatusError unless `range` consists of
  // whole units.
  static Range& checked_range(void* self, const bp_buffer_ref* range, const std::string& call) {
    if (range == nullptr) refuse(call + ": range is NULL");
    Range* const found = Backend::range(self, range->buffer);
    if (found == nullptr) refuse(call + ": range: buffer is not one that reserve() made");
    Backend::check_range(self, range->buffer, call.c_str());
    check_units(call + ": range: byte_offset", range->byte_offset);
    check_units(call + ": range: size_bytes", range->size_bytes);
    const uint64_t size_bytes = found->size_bytes();
    if (range->byte_offset > size_bytes || range->size_bytes > size_bytes - range->byte_offset) {
      refuse(call + ": range: " + std::to_string(range->size_bytes) + " bytes at " +
             std::to_string(range->byte_offset) + " leave the range of " +
             std::to_string(size_bytes));
    }
    return *found;
  }

  static MemoryOwner& known_memory(bp_physical_memory* handle, const char* call) {
    MemoryOwner* const owner = memory_owner(handle);
    if (owner != nullptr) return *owner;
    refuse(std::string(call) + ": memory is NULL or not of this backend");
  }

  static bp_status granularity(void* self, bp_device* device, uint64_t heap_index,
                               uint64_t* out_size_bytes) {
    Backend::check_heap(self, device, heap_index, "granularity");
    if (out_size_bytes == nullptr) refuse("granularity: out_size_bytes is NULL");
    *out_size_bytes = system_page_bytes();
    return BP_OK;
  }

  static bp_status reserve(void* self, bp_device* device, uint64_t size_bytes,
                           bp_buffer** out_range) {
    Backend::check_device(self, device, "reserve");
    if (out_range == nullptr) refuse("reserve: out_range is NULL");
    check_size("reserve: size_bytes", size_bytes);
    *out_range = Backend::add_range(self, device, size_bytes);
    return BP_OK;
  }

  static bp_status create(void* self, bp_device* device, uint64_t heap_index, uint64_t size_bytes,
                          bp_physical_memory** out_memory) {
    Backend::check_heap(self, device, heap_index, "create");
    if (out_memory == nullptr) refuse("create: out_memory is NULL");
    check_size("create: size_bytes", size_bytes);
    MemoryOwner* const owner = Backend::add_memory(self, device, heap_index, size_bytes);
    *out_memory = reinterpret_cast<bp_physical_memory*>(owner);
    return BP_OK;
  }

  static bp_status map(void* self, const bp_buffer_ref* range, bp_physical_memory* handle,
                       uint64_t memory_offset) {
    Range& reserved = checked_range(self, range, "map");
    MemoryOwner& owner = known_memory(handle, "map");
    Backend::check_memory(self, &owner, "map");
    const std::shared_ptr<const PhysicalMemory> memory = owner.memory;
    check_units("map: memory_offset", memory_offset);
    if (memory_offset > memory->size_bytes ||
        range->size_bytes > memory->size_bytes - memory_offset) {
      refuse("map: " + std::to_string(range->size_bytes) + " bytes at memory_offset " +
             std::to_string(memory_offset) + " leave the memory of " +
             std::to_string(memory->size_bytes));
    }
    if (range->size_bytes > 0) {
      reserved.map("map", range->byte_offset, range->size_bytes, memory, memory_offset);
    }
    return BP_OK;
  }

  static bp_status set_access(void* self, const bp_buffer_ref* range, uint64_t device_count,
                              bp_device* const* device_list, bp_access access) {
    Range& reserved = checked_range(self, range, "set_access");
    if (access > BP_ACCESS_READ_WRITE) {
      refuse("set_access: access is " + std::to_string(access) + "; 0 to 2 are allowed");
    }
    if (device_count > 0 && device_list == nullptr) refuse("set_access: device_list is NULL");
    for (uint64_t i = 0; i < device_count; ++i) {
      Backend::check_device(self, device_list[i], "set_access");
      Backend::check_reach(self, range->buffer, device_list[i]);
    }
    if (range->size_bytes > 0) {
      reserved.set_access("set_access", range->byte_offset, range->size_bytes, access);
    }
    return BP_OK;
  }

  static bp_status unmap(void* self, const bp_buffer_ref* range) {
    if constexpr (requires { Backend::is_dead_range(self, range->buffer); }) {
      const bool is_range = range != nullptr && Backend::range(self, range->buffer) != nullptr;
      if (is_range && Backend::is_dead_range(self, range->buffer)) return BP_OK;
    }
    Range& reserved = checked_range(self, range, "unmap");
    if (range->size_bytes > 0) reserved.unmap("unmap", range->byte_offset, range->size_bytes);
    return BP_OK;
  }

  static bp_status release_memory(void* self, bp_physical_memory* handle) {
    if (handle != nullptr) Backend::remove_memory(self, &known_memory(handle, "release_memory"));
    return BP_OK;
  }

  static bp_status release(void* self, bp_buffer* buffer) {
    if (buffer == nullptr) return BP_OK;
    const Range* const range = Backend::range(self, buffer);
    if (range == nullptr) refuse("release: range is not one that reserve() made");
    if (range->first_mapped() < range->size_bytes()) {
      refuse("release: byte " + std::to_string(range->first_mapped()) +
             " of the range is still mapped");
    }
    Backend::remove_range(self, buffer);
    return BP_OK;
  }
};

}  // namespace bp
