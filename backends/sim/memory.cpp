#include "backends/sim/memory.hpp"

#include <string>

#include "backends/sim/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::sim {
namespace {

// ---- Allocation ---------------------------------------------------------------------------------

void check_request(const Device& d, const bp_allocate_desc& desc) {
  const Options& options = d.options();
  check_allocation(desc, {.peer = options.has_peers ? nullptr : "option peer is no",
                          .exported = options.has_sharing ? nullptr : "option sharing is no"});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0 &&
      &stream_of(desc.stream, "allocate").device->card() != &d.card()) {
    refuse(BP_INVALID_ARGUMENT, "allocate: stream is of another device");
  }
}

std::unique_ptr<Buffer> make_buffer(Device& d, const bp_allocate_desc& desc) {
  const size_t heap = find_heap(d.properties(), desc);
  check_size(d.heap(heap), desc.size_bytes, "allocate");
  d.allocations().count();
  const auto lends = [&](std::shared_ptr<Memory> memory) {
    return std::make_unique<Buffer>(d, BufferKind::kAllocated, std::move(memory));
  };
  if ((desc.usage & BP_MEMORY_EXPORT) != 0) {
    return lends(make_shared_memory(d, heap, desc.size_bytes));
  }
  const std::shared_ptr<Pages> pages = Pages::allocate(d.place(heap), desc.size_bytes);
  std::unique_ptr<Buffer> b = lends(pages);
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) == 0) return b;
  b->is_stream_ordered = true;
  pages->make_unborn();
  const bp_status status =
      stream_of(desc.stream, "allocate")
          .queue->submit_always([pages](const Outcome&) { pages->begin(); }, false);
  if (status != BP_OK) refuse(status, "allocate: the stream takes no work");
  return b;
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
    *out_buffer = lend(make_buffer(d, request), "allocate");
    return BP_OK;
  });
}

// Returns a text about the bytes that were written behind the end of a buffer, or "" if there are
// none.
std::string damage_text(Memory& memory) {
  const Memory::Damage damage = memory.damage();
  if (damage.count == 0) return "";
  return "free: " + std::to_string(damage.count) + " bytes behind the end of a buffer of " +
         std::to_string(memory.size_bytes()) + " were overwritten, the first at " +
         std::to_string(damage.first_byte);
}

bp_status memory_free(void* self, bp_buffer* handle, bp_stream* stream_handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance& i) -> bp_status {
    Buffer* const b = buffer_or_null(handle);
    if (b == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "free: buffer is not one of this backend");
    }
    if (b->kind == BufferKind::kRegistered) {
      refuse(BP_INVALID_ARGUMENT,
             "free: buffer is the host's memory, which unregister_host() ends");
    }
    if (b->kind == BufferKind::kRange) {
      refuse(BP_INVALID_ARGUMENT,
             "free: buffer is a reserved range, which virtual_memory.release() ends");
    }
    Stream* const s = stream_handle == nullptr
                          ? nullptr
                          : &checked_object_of<Stream>(stream_handle, "free", "stream");
    const std::shared_ptr<Memory> memory = b->memory;
    const bool is_owner = b->kind == BufferKind::kAllocated;
    end_handle(b);
    if (!is_owner) return BP_OK;
    const auto end = [memory, &host = *i.host] {
      const std::string text = damage_text(*memory);
      memory->discard();
      if (text.empty()) return;
      host.log(host.self, BP_LOG_ERROR, text.c_str());
      throw DataFailure(BP_INTERNAL, text);
    };
    if (s != nullptr) return s->queue->submit_always([end](const Outcome&) { end(); }, false);
    try {
      end();
    } catch (const DataFailure&) {
      // The text goes to the log alone, because no stream can carry the failure.
    }
    return BP_OK;
  });
}

bp_status memory_address(void* self, bp_buffer* handle, uint64_t* out_address) {
  return entry(self, [&](const Instance& i) {
    const Buffer& b = buffer_of(handle, "address");
    require(out_address, "address: out_address");
    if (!i.options.has_addresses) {
      refuse(BP_UNSUPPORTED, "address: option addresses is no: buffers are handles alone");
    }
    *out_address = reinterpret_cast<uintptr_t>(b.address());
    return BP_OK;
  });
}

// ---- Mapping ------------------------------------------------------------------------------------

// The value that a host reads if it did not call invalidate().
constexpr std::byte kStale{0xCD};

bp_status memory_map(void* self, const bp_buffer_ref* ref, void** out_pointer) {
  return entry(self, [&](const Instance&) {
    const Range range = checked_range(ref, "map", "range", Access::kRead);
    require(out_pointer, "map: out_pointer");
    Buffer& b = range.buffer;
    if ((b.heap_flags() & BP_HEAP_HOST_VISIBLE) == 0) {
      refuse(BP_UNSUPPORTED, "map: the heap of the buffer is not host_visible");
    }
    if (b.kind == BufferKind::kRange) {
      refuse(BP_UNSUPPORTED, "map: the buffer is a reserved range, which has no heap of its own");
    }
    if (b.is_stream_ordered) refuse(BP_UNSUPPORTED, "map: the buffer is stream-ordered");
    const std::lock_guard lock(b.mutex);
    if (b.is_mapped) refuse(BP_INVALID_ARGUMENT, "map: the buffer is mapped already");
    if (b.has_shadow()) {
      if (b.shadow.empty()) b.shadow.resize(b.size_bytes, kStale);
      *out_pointer = b.shadow.data() + range.byte_offset;
    } else {
      range.use(Access::kWrite).open();
      *out_pointer = b.address() + range.byte_offset;
    }
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
    if (!b.has_shadow()) b.memory->close(Access::kWrite);
    return BP_OK;
  });
}

bp_status memory_flush(void* self, const bp_buffer_ref* ref) {
  return entry(self, [&](const Instance&) {
    const Range range = checked_range(ref, "flush", "range", Access::kRead);
    const std::lock_guard lock(range.buffer.mutex);
    if (range.buffer.shadow.empty()) return BP_OK;
    const std::vector<Use> use{range.use(Access::kWrite)};
    const OpenUses open(use);
    copy_bytes(use[0].address(), range.buffer.shadow.data() + range.byte_offset, range.size_bytes);
    return BP_OK;
  });
}

bp_status memory_invalidate(void* self, const bp_buffer_ref* ref) {
  return entry(self, [&](const Instance&) {
    const Range range = checked_range(ref, "invalidate", "range", Access::kRead);
    const std::lock_guard lock(range.buffer.mutex);
    if (range.buffer.shadow.empty()) return BP_OK;
    const std::vector<Use> use{range.use(Access::kRead)};
    const OpenUses open(use);
    copy_bytes(range.buffer.shadow.data() + range.byte_offset, use[0].address(), range.size_bytes);
    return BP_OK;
  });
}

}  // namespace

Range checked_range(const bp_buffer_ref* range, const char* call, const char* name, Access access) {
  const std::string what = std::string(call) + ": " + name;
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, what + " is NULL");
  Buffer& b = buffer_of(range->buffer, call, name);
  const uint64_t size_bytes = b.size_bytes;
  if (range->byte_offset > size_bytes || range->size_bytes > size_bytes - range->byte_offset) {
    refuse(BP_INVALID_ARGUMENT, what + ": " + std::to_string(range->size_bytes) + " bytes at " +
                                    std::to_string(range->byte_offset) + " leave the buffer of " +
                                    std::to_string(size_bytes));
  }
  b.memory->check(what, b.first_byte + range->byte_offset, range->size_bytes, access);
  return {b, range->byte_offset, range->size_bytes};
}

Use use_of(const bp_buffer_ref& range, Access access, const char* call, const char* what) {
  return checked_range(&range, call, what, access).use(access);
}

bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call) {
  if (!buffer->device->add(buffer.get())) {
    refuse(BP_ALREADY_EXISTS, std::string(call) + ": " + std::to_string(buffer->size_bytes) +
                                  " bytes overlap another buffer of the device");
  }
  return reinterpret_cast<bp_buffer*>(buffer.release());
}

void end_handle(Buffer* buffer) {
  buffer->magic = 0;
  buffer->device->remove(buffer);
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
    .copy_peer = memory_copy_peer,
    .can_access_peer = memory_can_access_peer,
    .fill = memory_fill,
    .wrap_address = memory_wrap_address,
    .address_info = memory_address_info,
    .register_host = memory_register_host,
    .unregister_host = memory_unregister_host,
    .export_buffer = memory_export_buffer,
    .import_buffer = memory_import_buffer,
};

}  // namespace bp::sim
