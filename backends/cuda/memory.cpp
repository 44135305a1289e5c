#include "backends/cuda/memory.hpp"

#include <cstddef>

#include "backplane/shell/allocation.hpp"
#include "backplane/shell/memory_ops.hpp"

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
    refuse_two_devices("allocate", "device");
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

}  // namespace

std::byte* address_of(const bp_buffer_ref& range) {
  if (range.buffer == nullptr) return nullptr;
  return pointer_to(reinterpret_cast<Buffer*>(range.buffer)->address + range.byte_offset);
}

std::unique_ptr<Buffer> MemoryTraits::allocate(Device& d, const bp_allocate_desc& request) {
  check_request(d, request);
  return make_buffer(d, request);
}

bp_status MemoryTraits::deallocate(const Instance&, Buffer& b, const Stream* stream) {
  // Launches that are held back read the address from the buffer, so the buffer lives as long as
  // they do.
  const std::shared_ptr<Buffer> buffer = take_back(b);
  if (stream == nullptr || buffer->device->is_lost()) {
    buffer->end_memory();
    return BP_OK;
  }
  Lane& lane = *stream->lane;
  return lane.submit_always([&lane, buffer](const Outcome&) { buffer->memory().end_behind(lane); });
}

// CUDA is not asked where wrapped memory lies.
uint64_t MemoryTraits::heap_of(const Buffer& b) {
  if (b.kind == BufferKind::kWrapped) return UINT64_MAX;
  return b.kind == BufferKind::kPinned || b.kind == BufferKind::kRegistered ? 1 : 0;
}

void MemoryTraits::check_map(const Buffer& b) {
  check_mappable(b.size_bytes == 0 || b.host != nullptr, (b.usage & BP_MEMORY_STREAM_ORDERED) != 0);
}

// ---- Memory without a handle --------------------------------------------------------------------

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
  lane.device().end_later([memory = *this] { memory.end(); }, lane.native());
}

constinit const bp_allocator_ops kAllocator = MemoryOps<MemoryTraits>::table();

}  // namespace bp::cuda
