#include "backends/cpu/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/device.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cpu {
namespace {

constexpr uint64_t kAlignmentBytes = 64;  // The size of a cache line and of the widest vector.

// Throws StatusError for a request that the device does not take. There is one heap.
void check_request(Device& d, const bp_allocate_desc& desc) {
  check_allocation(desc, {.peer = "this device has no peers",
                          .collective = "this device has no process groups"});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0) stream_of(desc.stream, "allocate");
  find_heap(d.properties(), desc);
  check_size(d.heap(), desc.size_bytes, "allocate");
}

void allocate_private(Buffer& buffer, uint64_t size_bytes, uint64_t alignment_bytes) {
  const uint64_t alignment = std::max(alignment_bytes, kAlignmentBytes);
  // The size that aligned_alloc() gets must be a multiple of the alignment.
  const uint64_t lines = std::max<uint64_t>(1, (size_bytes + alignment - 1) / alignment);
  buffer.memory.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, lines * alignment)));
  if (buffer.memory == nullptr) {
    refuse(BP_OUT_OF_MEMORY, "allocate: " + std::to_string(size_bytes) +
                                 " bytes were asked for, and the system has no room");
  }
  buffer.address = buffer.memory.get();
}

bp_status memory_allocate(void* self, bp_device* handle, const bp_allocate_desc* desc,
                          bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "allocate");
    require(desc, "allocate: desc");
    require(out_buffer, "allocate: out_buffer");
    const auto request =
        read_desc(desc, kFirstSize<bp_allocate_desc>, BP_STRUCT_ALLOCATE_DESC, "allocate");
    check_request(d, request);

    auto b = std::make_unique<Buffer>();
    b->size_bytes = request.size_bytes;
    if ((request.usage & BP_MEMORY_EXPORT) != 0) {
      allocate_shared(*b, request.size_bytes);
    } else {
      allocate_private(*b, request.size_bytes, request.alignment_bytes);
    }
    *out_buffer = lend(d, std::move(b), "allocate");
    return BP_OK;
  });
}

bp_status memory_free(void* self, bp_buffer* handle, bp_stream* stream_handle) {
  const Instance& i = instance(self);
  if (handle == nullptr) return BP_OK;
  return guarded(*i.host, [&] {
    Buffer* const b = buffer(handle);
    if (b == nullptr) {
      return i.fail(BP_INVALID_ARGUMENT, "free: buffer is not one of this backend");
    }
    if (b->is_registered || b->reservation != nullptr) {
      return i.fail(BP_INVALID_ARGUMENT,
                    b->is_registered
                        ? "free: buffer is the host's memory, which unregister_host() ends"
                        : "free: buffer is a reserved range, which virtual_memory.release() ends");
    }
    if (stream_handle == nullptr) {
      take_back(b);
      release(b);
      return bp_status{BP_OK};
    }
    Queue& q = *stream_of(stream_handle, "free").queue;
    return q.submit_always(
        [b](const Outcome&) {
          take_back(b);
          release(b);
        },
        true);
  });
}

bp_status memory_address(void* self, bp_buffer* handle, uint64_t* out_address) {
  const Instance& i = instance(self);
  const Buffer* const b = buffer(handle);
  if (b == nullptr) {
    return i.fail(BP_INVALID_ARGUMENT, "address: buffer is NULL or not one of this backend");
  }
  if (out_address == nullptr) return i.fail(BP_INVALID_ARGUMENT, "address: out_address is NULL");
  *out_address = reinterpret_cast<uintptr_t>(b->address);
  return BP_OK;
}

bp_status memory_map(void* self, const bp_buffer_ref* range, void** out_pointer) {
  return entry(self, [&](const Instance&) -> bp_status {
    std::byte* const pointer = checked_range(range, "map", "range", BP_ACCESS_READ);
    require(out_pointer, "map: out_pointer");
    if (buffer(range->buffer)->is_mapped.exchange(true)) {
      refuse(BP_INVALID_ARGUMENT, "map: the buffer is mapped already");
    }
    *out_pointer = pointer;
    return BP_OK;
  });
}

bp_status memory_unmap(void* self, bp_buffer* handle) {
  const Instance& i = instance(self);
  Buffer* const b = buffer(handle);
  if (b == nullptr) {
    return i.fail(BP_INVALID_ARGUMENT, "unmap: buffer is NULL or not one of this backend");
  }
  if (!b->is_mapped.exchange(false)) {
    return i.fail(BP_INVALID_ARGUMENT, "unmap: the buffer is not mapped");
  }
  return BP_OK;
}

bp_status memory_flush(void* self, const bp_buffer_ref* range) {
  return entry(self, [&](const Instance&) -> bp_status {
    checked_range(range, "flush", "range", BP_ACCESS_READ);
    return BP_OK;
  });
}

bp_status memory_invalidate(void* self, const bp_buffer_ref* range) {
  return entry(self, [&](const Instance&) -> bp_status {
    checked_range(range, "invalidate", "range", BP_ACCESS_READ);
    return BP_OK;
  });
}

}  // namespace

std::byte* checked_range(const bp_buffer_ref* range, const char* call, const char* name,
                         bp_access access) {
  const Buffer* const b = range == nullptr ? nullptr : buffer(range->buffer);
  const bool is_inside = b != nullptr && range->byte_offset <= b->size_bytes &&
                         range->size_bytes <= b->size_bytes - range->byte_offset;
  if (is_inside && b->reservation == nullptr) return b->address + range->byte_offset;
  const std::string what = std::string(call) + ": " + name;
  if (is_inside) {
    b->reservation->check(what, range->byte_offset, range->size_bytes, access);
    return b->address + range->byte_offset;
  }
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, what + " is NULL");
  if (b == nullptr) {
    refuse(BP_INVALID_ARGUMENT, what + ": buffer is NULL or not one of this backend");
  }
  refuse(BP_INVALID_ARGUMENT, what + ": " + std::to_string(range->size_bytes) + " bytes at " +
                                  std::to_string(range->byte_offset) + " leave the buffer of " +
                                  std::to_string(b->size_bytes));
}

bp_buffer* lend(Device& device, std::unique_ptr<Buffer> buffer, const char* call) {
  buffer->device = &device;
  if (!device.add(buffer.get())) {
    refuse(BP_ALREADY_EXISTS, std::string(call) + ": " + std::to_string(buffer->size_bytes) +
                                  " bytes overlap another buffer of this backend");
  }
  return reinterpret_cast<bp_buffer*>(buffer.release());
}

void take_back(Buffer* buffer) { buffer->device->remove(buffer); }

void release(Buffer* buffer) {
  buffer->magic = 0;
  delete buffer;
}

constinit const bp_allocator_ops kAllocator{
    .struct_size = sizeof(bp_allocator_ops),
    .struct_type = BP_STRUCT_ALLOCATOR_OPS,
    .allocate = memory_allocate,
    .free = memory_free,
    .address = memory_address,
    .map = memory_map,
    .unmap = memory_unmap,
    .flush = memory_flush,
    .invalidate = memory_invalidate,
    .copy = memory_copy,
    .copy_from_host = memory_copy_from_host,
    .copy_to_host = memory_copy_to_host,
    .can_access_peer = memory_can_access_peer,
    .fill = memory_fill,
    .wrap_address = memory_wrap_address,
    .address_info = memory_address_info,
    .register_host = memory_register_host,
    .unregister_host = memory_unregister_host,
    .export_buffer = memory_export_buffer,
    .import_buffer = memory_import_buffer,
};

}  // namespace bp::cpu
