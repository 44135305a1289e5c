// The memory of the fake CUDA, which is memory of the host.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "backends/cuda/fake/entries.hpp"

// NOLINTBEGIN(readability-identifier-naming)
namespace bp::cuda::fake::entries {

namespace {

uint64_t used_bytes(int ordinal) {
  uint64_t used = 0;
  for (const auto& [pointer, allocation] : state().memory) {
    const bool is_device =
        allocation.kind == MemoryKind::kPlain || allocation.kind == MemoryKind::kPool;
    if (is_device && allocation.ordinal == ordinal) used += allocation.size_bytes;
  }
  return used;
}

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(state().mutex);
  *total = state().setup.memory_bytes;
  *free = *total - used_bytes(current()->ordinal);
  return cudaSuccess;
}

namespace {

cudaError_t take(void** pointer, size_t size, MemoryKind kind) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int ordinal = current()->ordinal;
  if (kind != MemoryKind::kPinned && size > s.setup.memory_bytes - used_bytes(ordinal)) {
    return cudaErrorMemoryAllocation;
  }
  void* const memory = std::aligned_alloc(256, (size + 255) & ~size_t{255});
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  s.memory[memory] = {size, ordinal, kind};
  *pointer = memory;
  return cudaSuccess;
}

// Frees memory of one of `kinds`. Returns false if there is no such memory at `pointer`.
bool give(const void* pointer, std::initializer_list<MemoryKind> kinds) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.memory.find(pointer);
  if (found == s.memory.end() ||
      std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end()) {
    s.violations.push_back("memory was freed that is not there, or by the wrong function");
    return false;
  }
  if (found->second.kind != MemoryKind::kRegistered) std::free(const_cast<void*>(pointer));
  s.memory.erase(found);
  return true;
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, size_t size) {
  return take(pointer, size, MemoryKind::kPlain);
}

// Frees memory of a pool at once, and other memory when the device has nothing to do.
cudaError_t cudaFree(void* pointer) {
  State& s = state();
  bool is_plain = false;
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.memory.find(pointer);
    is_plain = found != s.memory.end() && found->second.kind == MemoryKind::kPlain;
  }
  if (is_plain) s.wait_for_all(current());
  return give(pointer, {MemoryKind::kPlain, MemoryKind::kPool}) ? cudaSuccess
                                                                : cudaErrorInvalidValue;
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t pool, cudaStream_t) {
  if (reinterpret_cast<FakePool*>(pool)->waits) {
    state().break_rule("memory was taken of a pool that may wait for other streams");
  }
  return take(pointer, size, MemoryKind::kPool);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&give),
                        [pointer] { give(pointer, {MemoryKind::kPool}); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  auto made = std::make_unique<FakePool>();
  made->context = context_of(properties->location.id);
  *pool = reinterpret_cast<cudaMemPool_t>(made.get());
  const std::lock_guard lock(state().mutex);
  state().pools[made.get()] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::lock_guard lock(state().mutex);
  state().pools.erase(reinterpret_cast<FakePool*>(pool));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolReuseAllowInternalDependencies) return cudaErrorInvalidValue;
  reinterpret_cast<FakePool*>(pool)->waits = *static_cast<const int*>(value) != 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  return take(pointer, size, MemoryKind::kPinned);
}

cudaError_t cudaFreeHost(void* pointer) {
  return give(pointer, {MemoryKind::kPinned}) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned) {
  const std::lock_guard lock(state().mutex);
  const auto* const begin = static_cast<const std::byte*>(pointer);
  for (const auto& [other, allocation] : state().memory) {
    const auto* const theirs = static_cast<const std::byte*>(other);
    if (begin < theirs + allocation.size_bytes && theirs < begin + size) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
  }
  state().memory[pointer] = {size, current()->ordinal, MemoryKind::kRegistered};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  return give(pointer, {MemoryKind::kRegistered}) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned) {
  *pointer = host;
  return cudaSuccess;
}

namespace {

// Returns the kind of memory that contains `pointer`.
cudaMemoryType type_of(const void* pointer) {
  const std::lock_guard lock(state().mutex);
  auto found = state().memory.upper_bound(pointer);
  if (found == state().memory.begin()) return cudaMemoryTypeUnregistered;
  --found;
  const auto* const begin = static_cast<const std::byte*>(found->first);
  if (static_cast<const std::byte*>(pointer) >= begin + found->second.size_bytes) {
    return cudaMemoryTypeUnregistered;
  }
  const MemoryKind kind = found->second.kind;
  return kind == MemoryKind::kPlain || kind == MemoryKind::kPool ? cudaMemoryTypeDevice
                                                                 : cudaMemoryTypeHost;
}

}  // namespace

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->type = type_of(pointer);
  return cudaSuccess;
}

// Blocks until the copy is made if one side is pageable, as CUDA does; but see reads_pageable_late.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  const bool is_pageable =
      type_of(dst) == cudaMemoryTypeUnregistered || type_of(src) == cudaMemoryTypeUnregistered;
  const bool is_late =
      type_of(src) == cudaMemoryTypeUnregistered && state().setup.reads_pageable_late;
  const cudaError_t error =
      state().submit(stream, reinterpret_cast<const void*>(&type_of), [dst, src, size, is_late] {
        if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::memmove(dst, src, size);
      });
  if (is_late) return error;
  FakeStream* const s = state().find(stream);
  if (error == cudaSuccess && is_pageable && s->capture == nullptr) s->queue->wait(UINT64_MAX);
  return error;
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t size,
                                cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&used_bytes),
                        [dst, src, size] { std::memmove(dst, src, size); });
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t size, cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&take),
                        [dst, value, size] { std::memset(dst, value, size); });
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

}  // namespace bp::cuda::fake::entries
// NOLINTEND(readability-identifier-naming)
