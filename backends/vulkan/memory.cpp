#include "backends/vulkan/memory.hpp"

#include <cstddef>
#include <string>

#include "backends/vulkan/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::vulkan {
namespace {

constexpr uint64_t kLeastAlignmentBytes = 256;  // Workspaces need it.

// ---- Allocation ---------------------------------------------------------------------------------

void check_request(const Device& d, const bp_allocate_desc& desc) {
  check_allocation(desc, {.peer = "devices reach their own memory alone",
                          .exported = "memory of this backend stays in its process"});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0 &&
      &stream_of(desc.stream, "allocate").device->card() != &d.card()) {
    refuse(BP_INVALID_ARGUMENT, "allocate: stream is of another device");
  }
}

std::shared_ptr<Memory> make_memory(Device& d, size_t heap, const bp_allocate_desc& desc) {
  const uint64_t alignment = std::max(desc.alignment_bytes, kLeastAlignmentBytes);
  const std::shared_ptr<Engine> engine = d.card().engine();
  const auto make = [&] {
    return std::make_shared<Memory>(engine->context, heap, desc.size_bytes, alignment, "allocate");
  };
  try {
    return make();
  } catch (const StatusError& e) {
    if (e.status() != BP_OUT_OF_MEMORY) throw;
  }
  engine->recorder.collect();  // This may free enough memory.
  return make();
}

std::unique_ptr<Buffer> make_buffer(Device& d, const bp_allocate_desc& desc) {
  const size_t heap = find_heap(d.properties(), desc);
  check_size(d.heap(heap), desc.size_bytes, "allocate");
  d.allocations().count();
  std::shared_ptr<Memory> memory = make_memory(d, heap, desc);
  d.card().add(memory);
  auto buffer =
      std::make_unique<Buffer>(d, BufferKind::kAllocated, std::move(memory), 0, desc.size_bytes);
  buffer->is_stream_ordered = (desc.usage & BP_MEMORY_STREAM_ORDERED) != 0;
  return buffer;
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
    *out_buffer = lend(make_buffer(d, request));
    return BP_OK;
  });
}

// Frees memory behind work. The memory lives until the work has ended.
bp_status free_behind(Stream& s, std::shared_ptr<Memory> memory) {
  return s.queue->submit_always(
      [lane = s.lane, memory = std::move(memory)](const Outcome&) {
        try {
          if (lane->recorder().is_done(lane->last())) return;
          lane->recorder().record([&](Recording& recording) { recording.retain(memory); });
        } catch (const StatusError&) {
          // The device is lost, so nothing uses the memory any more.
        }
      },
      false);
}

bp_status memory_free(void* self, bp_buffer* handle, bp_stream* stream_handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) -> bp_status {
    Buffer* const b = buffer_or_null(handle);
    if (b == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "free: buffer is not one of this backend");
    }
    Stream* const s = stream_handle == nullptr
                          ? nullptr
                          : &checked_object_of<Stream>(stream_handle, "free", "stream");
    std::shared_ptr<Memory> memory = b->memory;
    const bool is_owner = b->kind == BufferKind::kAllocated;
    b->magic = 0;
    b->device->remove(b);
    delete b;
    if (!is_owner || s == nullptr) return BP_OK;
    return free_behind(*s, std::move(memory));
  });
}

bp_status memory_address(void* self, bp_buffer* handle, uint64_t* out_address) {
  return entry(self, [&](const Instance&) {
    const Buffer& b = buffer_of(handle, "address");
    require(out_address, "address: out_address");
    *out_address = b.address();
    return BP_OK;
  });
}

// ---- Mapping ------------------------------------------------------------------------------------

bp_status memory_map(void* self, const bp_buffer_ref* ref, void** out_pointer) {
  return entry(self, [&](const Instance&) {
    const CheckedRange range = checked_range(ref, "map", "range");
    require(out_pointer, "map: out_pointer");
    Buffer& b = range.buffer;
    if ((b.heap_flags() & BP_HEAP_HOST_VISIBLE) == 0) {
      refuse(BP_UNSUPPORTED, "map: the heap of the buffer is not host_visible");
    }
    if (b.is_stream_ordered) refuse(BP_UNSUPPORTED, "map: the buffer is stream-ordered");
    const std::lock_guard lock(b.mutex);
    if (b.is_mapped) refuse(BP_INVALID_ARGUMENT, "map: the buffer is mapped already");
    *out_pointer = b.memory->map() + b.first_byte + range.byte_offset;
    b.is_mapped = true;
    return BP_OK;
  });
}

bp_status memory_unmap(void* self, bp_buffer* handle) {
  return entry(self, [&](const Instance&) {
    Buffer& b = buffer_of(handle, "unmap");
    const std::lock_guard lock(b.mutex);
    if (!b.is_mapped) refuse(BP_INVALID_ARGUMENT, "unmap: the buffer is not mapped");
    b.is_mapped = false;
    return BP_OK;
  });
}

// Calls the body with the range, if the host can see its memory.
bp_status with_visible_range(void* self, const bp_buffer_ref* ref, const char* call,
                             void (Memory::*function)(uint64_t, uint64_t)) {
  return entry(self, [&](const Instance&) {
    const CheckedRange range = checked_range(ref, call, "range");
    if ((range.buffer.heap_flags() & BP_HEAP_HOST_VISIBLE) != 0) {
      ((*range.buffer.memory).*function)(range.buffer.first_byte + range.byte_offset,
                                         range.size_bytes);
    }
    return BP_OK;
  });
}

bp_status memory_flush(void* self, const bp_buffer_ref* ref) {
  return with_visible_range(self, ref, "flush", &Memory::flush);
}

bp_status memory_invalidate(void* self, const bp_buffer_ref* ref) {
  return with_visible_range(self, ref, "invalidate", &Memory::invalidate);
}

}  // namespace

bp_buffer* lend(std::unique_ptr<Buffer> buffer) {
  buffer->device->add(buffer.get());
  return reinterpret_cast<bp_buffer*>(buffer.release());
}

CheckedRange checked_range(const bp_buffer_ref* range, const char* call, const char* name) {
  const auto what = [&] { return std::string(call) + ": " + name; };
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, what() + " is NULL");
  Buffer& b = buffer_of(range->buffer, call, name);
  const uint64_t size_bytes = b.size_bytes;
  if (range->byte_offset > size_bytes || range->size_bytes > size_bytes - range->byte_offset) {
    refuse(BP_INVALID_ARGUMENT, what() + ": " + std::to_string(range->size_bytes) + " bytes at " +
                                    std::to_string(range->byte_offset) + " leave the buffer of " +
                                    std::to_string(size_bytes));
  }
  return {b, range->byte_offset, range->size_bytes};
}

CheckedRange local_range(const Stream& stream, const bp_buffer_ref* range, const char* call,
                         const char* name) {
  const CheckedRange checked = checked_range(range, call, name);
  if (&checked.buffer.device->card() != &stream.device->card()) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + " and stream are of two devices");
  }
  return checked;
}

const bp_allocator_ops kAllocator{
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
    .copy_peer = memory_copy_peer,
    .can_access_peer = memory_can_access_peer,
    .fill = memory_fill,
    .wrap_address = memory_wrap_address,
    .address_info = memory_address_info,
};

}  // namespace bp::vulkan
