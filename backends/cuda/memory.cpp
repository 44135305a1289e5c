#include "backends/cuda/memory.hpp"

#include <cstddef>

#include "backplane/shell/allocation.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cuda {
namespace {

constexpr uint64_t kNativeAlignmentBytes = 256;  // CUDA guarantees it for every allocation.

// ---- Allocation ---------------------------------------------------------------------------------

void check_request(Device& d, const bp_allocate_desc& desc) {
  const bool is_ordered = (desc.usage & BP_MEMORY_STREAM_ORDERED) != 0;
  const bool has_pool = !is_ordered || d.pool() != nullptr;
  check_allocation(
      desc, {.stream_ordered = has_pool ? nullptr
                                        : "this needs a memory pool: the device has none, or "
                                          "option allocator is \"plain\"",
             .exported = "memory of this backend stays in its process"});
  if (is_ordered && lane_of(desc.stream, "allocate").device().ordinal() != d.ordinal()) {
    refuse(BP_INVALID_ARGUMENT, "allocate: stream is of another device");
  }
}

// Takes memory from the device's pool. On a free stream the allocation is stream-ordered; else the
// memory exists at once.
void* take_from_pool(Device& d, const bp_allocate_desc& desc, uint64_t size_bytes) {
  const Driver& driver = d.driver();
  const cudaMemPool_t pool = d.pool();
  Lane* const lane = desc.stream == nullptr ? nullptr : &lane_of(desc.stream, "allocate");
  const bool is_ordered = lane != nullptr && lane->is_free();
  const cudaStream_t stream = is_ordered ? lane->native() : d.memory_stream();
  void* memory = nullptr;
  cudaError_t error = driver.cudaMallocFromPoolAsync(&memory, size_bytes, pool, stream);
  if (error == cudaErrorMemoryAllocation) {  // The pool may hold free memory.
    driver.cudaGetLastError();
    driver.cudaMemPoolTrimTo(pool, 0);
    error = driver.cudaMallocFromPoolAsync(&memory, size_bytes, pool, stream);
  }
  check(driver, error, "cudaMallocFromPoolAsync");
  if (is_ordered) return memory;
  error = driver.cudaStreamSynchronize(stream);
  if (error != cudaSuccess) driver.cudaFreeAsync(memory, stream);
  check(driver, error, "cudaStreamSynchronize");
  return memory;
}

void* take_memory(Device& d, const bp_allocate_desc& desc, BufferKind kind, uint64_t size_bytes) {
  const Driver& driver = d.driver();
  void* memory = nullptr;
  switch (kind) {
    case BufferKind::kPinned:
      check(driver,
            driver.cudaHostAlloc(&memory, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped),
            "cudaHostAlloc");
      return memory;
    case BufferKind::kPool:
      return take_from_pool(d, desc, size_bytes);
    default:
      check(driver, driver.cudaMalloc(&memory, size_bytes), "cudaMalloc");
      return memory;
  }
}

std::unique_ptr<Buffer> make_buffer(Device& d, const bp_allocate_desc& desc) {
  const size_t heap = find_heap(d.properties(), desc);
  check_size(d.heap(heap), desc.size_bytes, "allocate");
  const BufferKind kind = heap == 1
                              ? BufferKind::kPinned
                              : (d.pool() != nullptr ? BufferKind::kPool : BufferKind::kPlain);
  auto b = std::make_unique<Buffer>(d, kind, desc.size_bytes);
  b->usage = desc.usage;
  if (desc.size_bytes == 0) return b;
  const uint64_t spare =
      desc.alignment_bytes > kNativeAlignmentBytes ? desc.alignment_bytes : uint64_t{0};
  const Current current(d);
  try {
    b->base = take_memory(d, desc, b->kind, desc.size_bytes + spare);
  } catch (const CudaError& e) {
    d.note(e);
    refuse(e.status(), "allocate: " + std::to_string(desc.size_bytes) + " bytes on " +
                           d.properties().name + ": " + e.what());
  }
  b->address = reinterpret_cast<uintptr_t>(b->base);
  if (spare != 0) b->address = (b->address + spare - 1) & ~(spare - 1);
  if (b->kind == BufferKind::kPinned) b->host = pointer_to(b->address);
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

bp_status memory_free(void* self, bp_buffer* handle, bp_stream* stream_handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) -> bp_status {
    Buffer* const b = buffer_or_null(handle);
    if (b == nullptr) refuse(BP_INVALID_ARGUMENT, "free: buffer is not one of this backend");
    if (b->kind == BufferKind::kRegistered) {
      refuse(BP_INVALID_ARGUMENT,
             "free: buffer is the host's memory, which unregister_host() ends");
    }
    Stream* const s = stream_handle == nullptr
                          ? nullptr
                          : &checked_object_of<Stream>(stream_handle, "free", "stream");
    // Launches that are held back read the address from the buffer, so the buffer lives as long as
    // they do.
    const std::shared_ptr<Buffer> buffer = end_handle(b);
    const OwnedMemory memory = buffer->memory();
    if (s == nullptr || memory.device->is_lost()) {
      memory.end();
      return BP_OK;
    }
    Lane& lane = *s->lane;
    return lane.submit_always(
        [&lane, buffer](const Outcome&) { buffer->memory().end_behind(lane); });
  });
}

bp_status memory_address(void* self, bp_buffer* handle, uint64_t* out_address) {
  return entry(self, [&](const Instance&) -> bp_status {
    const Buffer& b = buffer_of(handle, "address");
    require(out_address, "address: out_address");
    *out_address = b.address;
    return BP_OK;
  });
}

// ---- Mapping ------------------------------------------------------------------------------------

bp_status memory_map(void* self, const bp_buffer_ref* ref, void** out_pointer) {
  return entry(self, [&](const Instance&) -> bp_status {
    const Range range = checked_range(ref, "map", "range");
    require(out_pointer, "map: out_pointer");
    Buffer& b = range.buffer;
    if (b.size_bytes != 0 && b.host == nullptr) {
      refuse(BP_UNSUPPORTED, "map: the heap of the buffer is not host_visible");
    }
    if ((b.usage & BP_MEMORY_STREAM_ORDERED) != 0) {
      refuse(BP_UNSUPPORTED, "map: the buffer is stream-ordered");
    }
    const std::lock_guard lock(b.mutex);
    if (b.is_mapped) refuse(BP_INVALID_ARGUMENT, "map: the buffer is mapped already");
    b.is_mapped = true;
    *out_pointer = range.begin();
    return BP_OK;
  });
}

bp_status memory_unmap(void* self, bp_buffer* handle) {
  return entry(self, [&](const Instance&) -> bp_status {
    Buffer& b = buffer_of(handle, "unmap");
    const std::lock_guard lock(b.mutex);
    if (!b.is_mapped) refuse(BP_INVALID_ARGUMENT, "unmap: the buffer is not mapped");
    b.is_mapped = false;
    return BP_OK;
  });
}

// Does nothing, because memory that the host sees is coherent.
bp_status memory_flush(void* self, const bp_buffer_ref* ref) {
  return entry(self, [&](const Instance&) -> bp_status {
    checked_range(ref, "flush", "range");
    return BP_OK;
  });
}

bp_status memory_invalidate(void* self, const bp_buffer_ref* ref) {
  return entry(self, [&](const Instance&) -> bp_status {
    checked_range(ref, "invalidate", "range");
    return BP_OK;
  });
}

}  // namespace

// ---- Handles ------------------------------------------------------------------------------------

void OwnedMemory::end() const {
  if (base == nullptr) return;
  // cudaFree() frees pool memory without waiting, because all uses have completed.
  device->quietly([this](const Driver& driver) {
    if (kind == BufferKind::kRegistered) {
      driver.cudaHostUnregister(base);
    } else if (kind == BufferKind::kPinned) {
      driver.cudaFreeHost(base);
    } else {
      driver.cudaFree(base);
    }
  });
}

// Never fails, because work of the stream must not fail for it.
void OwnedMemory::end_behind(Lane& lane) const {
  if (base == nullptr) return;
  const Driver& driver = device->driver();
  try {
    const Current current(lane.device());
    if (kind == BufferKind::kPool && driver.cudaFreeAsync(base, lane.native()) == cudaSuccess) {
      return;
    }
    driver.cudaGetLastError();
  } catch (const CudaError&) {
  }
  // Memory that CUDA cannot free in stream order is freed once the stream has reached this point.
  device->end_later(*this, lane);
}

OwnedMemory Buffer::memory() const { return {device, kind, base}; }

std::unique_ptr<Buffer> end_handle(Buffer* buffer) {
  buffer->magic = 0;
  buffer->device->remove(buffer);
  return std::unique_ptr<Buffer>(buffer);
}

bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call) {
  if (!buffer->device->add(buffer.get())) {
    buffer->memory().end();
    refuse(BP_ALREADY_EXISTS, std::string(call) + ": " + std::to_string(buffer->size_bytes) +
                                  " bytes overlap another buffer of the device");
  }
  return reinterpret_cast<bp_buffer*>(buffer.release());
}

Range checked_range(const bp_buffer_ref* range, const char* call, const char* name) {
  const std::string what = std::string(call) + ": " + name;
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, what + " is NULL");
  Buffer& b = buffer_of(range->buffer, call, name);
  if (range->byte_offset > b.size_bytes || range->size_bytes > b.size_bytes - range->byte_offset) {
    refuse(BP_INVALID_ARGUMENT, what + ": " + std::to_string(range->size_bytes) + " bytes at " +
                                    std::to_string(range->byte_offset) + " leave the buffer of " +
                                    std::to_string(b.size_bytes));
  }
  return {b, b.address + range->byte_offset, range->size_bytes};
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
};

}  // namespace bp::cuda
