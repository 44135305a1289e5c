#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "backplane/blocks.h"
#include "backplane/pinned.h"
#include "device.h"
#include "log.h"

namespace bpg {
namespace {

const bp_heap& heap_at(const bp_target* target, uint64_t index) {
  const auto* const first = reinterpret_cast<const std::byte*>(target->properties->heaps);
  return *reinterpret_cast<const bp_heap*>(first + index * target->properties->heap_stride_bytes);
}

bool has_flags(const bp_heap& heap, bp_heap_flags flags) { return (heap.flags & flags) == flags; }

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

// ---- Memory of the program ----------------------------------------------------------------------

// True if registered memory is of a heap that is the fastest of the device.
bool is_local(const bp_target* target, bp_buffer* buffer) {
  bp_buffer_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_BUFFER_INFO;
  const bp_allocator_ops* const memory = target->allocator;
  if (memory->buffer_info(memory->self, buffer, &info) != BP_OK) return false;
  return info.heap_index < target->properties->heap_count &&
         has_flags(heap_at(target, info.heap_index), BP_HEAP_DEVICE_LOCAL);
}

bool takes(const bp_target* target, void* page) {
  const bp_allocator_ops* const memory = target->allocator;
  bp_buffer* buffer = nullptr;
  if (memory->register_host(memory->self, target->device, page, page_bytes(), &buffer) != BP_OK) {
    bp_error_clear();
    return false;
  }
  const bool answer = is_local(target, buffer);
  memory->unregister_host(memory->self, buffer);
  return answer;
}

// What ends a lent block.
struct Lent {
  const bp_target* target;
  bp_buffer* buffer;
};

void end(void* user_data) {
  Lent* const lent = static_cast<Lent*>(user_data);
  const bp_allocator_ops* const memory = lent->target->allocator;
  const bp_status status = memory->unregister_host(memory->self, lent->buffer);
  if (status != BP_OK) log_error(failure_text(status, "memory of the host is still registered"));
  delete lent;
}

// ---- Pinned memory ------------------------------------------------------------------------------

Device& device_of(ggml_backend_buffer_type_t type) { return *static_cast<Device*>(type->context); }

const char* pinned_name(ggml_backend_buffer_type_t type) {
  return device_of(type).pinned_name.c_str();
}

void free_pinned(ggml_backend_buffer_t buffer) {
  const Device& device = device_of(buffer->buft);
  const bp_status status = bp_pinned_free(device.target, buffer->context);
  if (status != BP_OK) log_error(failure_text(status, device.pinned_name + " is not freed"));
}

// The buffer is one of ggml's CPU backend, which computes in it as well.
ggml_backend_buffer_t alloc_pinned(ggml_backend_buffer_type_t type, size_t size) {
  const Device& device = device_of(type);
  void* memory = nullptr;
  const bp_status status = bp_pinned_allocate(device.target, std::max<size_t>(size, 1), &memory);
  if (status != BP_OK) {
    log_error(failure_text(status, "there is no buffer of " + std::to_string(size) + " bytes of " +
                                       device.pinned_name));
    return nullptr;
  }
  ggml_backend_buffer_t const buffer = ggml_backend_cpu_buffer_from_ptr(memory, size);
  buffer->buft = type;
  buffer->iface.free_buffer = free_pinned;
  return buffer;
}

// As ggml's CPU backend asks for; blocks of the library have 512.
size_t pinned_alignment(ggml_backend_buffer_type_t) { return 128; }

bool is_host(ggml_backend_buffer_type_t) { return true; }

}  // namespace

bool takes_host_memory(const bp_target* target) {
  const uint64_t alignment = target->properties->host_register_alignment_bytes;
  const bp_allocator_ops* const memory = target->allocator;
  // What lies between the memory and the next multiple of a page may be read as well.
  if (alignment == 0 || alignment > page_bytes()) return false;
  if (memory->register_host == nullptr || memory->unregister_host == nullptr) return false;
  void* const page = mmap(nullptr, page_bytes(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool answer = takes(target, page);
  munmap(page, page_bytes());
  return answer;
}

bool has_pinned_memory(const bp_target* target) {
  constexpr bp_heap_flags kHost = BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT;
  const bp_heap* best = nullptr;
  // The order of bp_pinned_allocate().
  for (const bp_heap_flags wanted : {kHost | BP_HEAP_HOST_CACHED, kHost}) {
    for (uint64_t i = 0; i < target->properties->heap_count; ++i) {
      const bp_heap& heap = heap_at(target, i);
      if (has_flags(heap, BP_HEAP_DEVICE_LOCAL) || !has_flags(heap, wanted)) continue;
      if (best == nullptr) best = &heap;
    }
  }
  for (uint64_t i = 0; i < target->properties->heap_count && best == nullptr; ++i) {
    if (has_flags(heap_at(target, i), kHost)) best = &heap_at(target, i);
  }
  return best != nullptr && has_flags(*best, BP_HEAP_HOST_CACHED | BP_HEAP_HOST_CONCURRENT);
}

ggml_backend_buffer_type_i pinned_type_functions() {
  return {
      .get_name = pinned_name,
      .alloc_buffer = alloc_pinned,
      .alloc_buffer_n = nullptr,
      .get_alignment = pinned_alignment,
      .get_max_size = nullptr,
      .get_alloc_size = nullptr,
      .get_alloc_size_n = nullptr,
      .is_host = is_host,
  };
}

bp_block* lend_host_memory(const Device& device, void* memory, size_t size) {
  const bp_target* const target = device.target;
  const bp_allocator_ops* const allocator = target->allocator;
  const uint64_t alignment = target->properties->host_register_alignment_bytes;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uint64_t before = begin % alignment;
  const uint64_t whole = (before + size + alignment - 1) / alignment * alignment;
  bp_buffer* buffer = nullptr;
  bp_status status = allocator->register_host(
      allocator->self, target->device, static_cast<std::byte*>(memory) - before, whole, &buffer);
  bp_block* block = nullptr;
  if (status == BP_OK) {
    bp_block_wrap_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_BLOCK_WRAP_DESC;
    desc.ref = {buffer, before, size};
    desc.release = end;
    desc.user_data = new Lent{target, buffer};
    status = bp_block_wrap(target, nullptr, &desc, &block);
    if (status != BP_OK) end(desc.user_data);
  }
  if (status == BP_OK) return block;
  log_error(failure_text(status, device.name + " does not take " + std::to_string(size) +
                                     " bytes of the host's memory; without a mapped model "
                                     "(--load-mode none) they are copied"));
  return nullptr;
}

void end_host_block(Device& device, bp_block* block) {
  device.synchronize();
  device.free_block(block);
  bp_cache_empty(device.target);
}

}  // namespace bpg
