// Mutants of the allocator, and a benign one that uses buffers again.
#include <map>
#include <unordered_map>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// Buffers, by size, that were freed but not given back.
struct Pool {
  std::unordered_map<bp_buffer*, uint64_t> sizes;  // The sizes of buffers that are in use and may
                                                   // enter the pool.
  std::multimap<uint64_t, bp_buffer*> free_buffers;
};

Pool& pool_of(Runtime& runtime) { return runtime.state_as<Pool>(); }

// Returns whether the request is plain. A freed buffer can serve another plain request of its size.
bool is_plain(const bp_allocate_desc* desc) {
  return desc != nullptr && desc->struct_size == sizeof(bp_allocate_desc) &&
         desc->next == nullptr && desc->stream == nullptr && desc->usage == 0 &&
         desc->heap_flags == 0 && desc->heap_mask == 0 && desc->layout == nullptr &&
         desc->alignment_bytes == 0;
}

bp_status allocate_pooled(void* self, bp_device* device, const bp_allocate_desc* desc,
                          bp_buffer** out_buffer) {
  Runtime& r = runtime_of(self);
  const bp_allocator_ops& good = r.good.allocator;
  const bool may_pool = is_plain(desc) && device != nullptr && out_buffer != nullptr;
  const std::lock_guard lock(r.mutex);
  Pool& pool = pool_of(r);
  if (may_pool) {
    if (auto found = pool.free_buffers.find(desc->size_bytes); found != pool.free_buffers.end()) {
      *out_buffer = found->second;
      pool.sizes[found->second] = found->first;
      pool.free_buffers.erase(found);
      return BP_OK;
    }
  }
  const bp_status status = good.allocate(good.self, device, desc, out_buffer);
  if (status == BP_OK && may_pool) pool.sizes[*out_buffer] = desc->size_bytes;
  return status;
}

// Takes the buffer into the pool. Returns false if it is not a buffer for the pool.
bool keep(Runtime& r, bp_buffer* buffer) {
  const std::lock_guard lock(r.mutex);
  const auto found = pool_of(r).sizes.find(buffer);
  if (found == pool_of(r).sizes.end()) return false;
  pool_of(r).free_buffers.emplace(found->second, buffer);
  pool_of(r).sizes.erase(found);
  return true;
}

// 27: gives out a buffer at once that was freed behind the work of a stream.
bp_status free_at_once(void* self, bp_buffer* buffer, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  if (stream != nullptr && keep(r, buffer)) return BP_OK;
  if (buffer != nullptr) {
    const std::lock_guard lock(r.mutex);
    pool_of(r).sizes.erase(buffer);
  }
  return r.good.allocator.deallocate(r.good.allocator.self, buffer, stream);
}

// Benign: gives a handle out again once all its uses have ended.
bp_status free_for_later(void* self, bp_buffer* buffer, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  if (stream == nullptr && buffer != nullptr && keep(r, buffer)) return BP_OK;
  if (buffer != nullptr) {
    const std::lock_guard lock(r.mutex);
    pool_of(r).sizes.erase(buffer);
  }
  return r.good.allocator.deallocate(r.good.allocator.self, buffer, stream);
}

// A buffer in the pool must not be found as a buffer.
bp_status find_in_use(void* self, uint64_t address, bp_address_info* out_info) {
  Runtime& r = runtime_of(self);
  bp_address_info found{};
  found.struct_size = sizeof(found);
  found.struct_type = BP_STRUCT_ADDRESS_INFO;
  const bp_allocator_ops& good = r.good.allocator;
  if (good.address_info(good.self, address, &found) == BP_OK) {
    const std::lock_guard lock(r.mutex);
    for (const auto& [size, buffer] : pool_of(r).free_buffers) {
      if (buffer != found.buffer) continue;
      return r.host.set_error(r.host.self, BP_NOT_FOUND, "address_info: the buffer was freed");
    }
  }
  return good.address_info(good.self, address, out_info);
}

void empty_pool(Runtime& r) {
  for (const auto& [size, buffer] : pool_of(r).free_buffers) {
    static_cast<void>(r.good.allocator.deallocate(r.good.allocator.self, buffer, nullptr));
  }
  pool_of(r).free_buffers.clear();
}

bp_status misaligned_address(void* self, bp_buffer* buffer, uint64_t* out_address) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.address(good.self, buffer, out_address);
  if (status == BP_OK) *out_address += 8;
  return status;
}

// Says how much memory it took for the buffer, instead of how large the buffer is.
bp_status rounded_size(void* self, bp_buffer* buffer, bp_buffer_info* out_info) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.buffer_info(good.self, buffer, out_info);
  if (status == BP_OK) out_info->size_bytes = (out_info->size_bytes + 511) / 512 * 512;
  return status;
}

// Takes every pointer, as often as it is given.
bp_status unmap_anything(void* self, bp_buffer* buffer, void* pointer) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  static_cast<void>(good.unmap(good.self, buffer, pointer));
  return BP_OK;
}

// Reads the handle before it checks the handle.
bp_status free_without_looking(void* self, bp_buffer* buffer, bp_stream* stream) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const volatile char first = *reinterpret_cast<const volatile char*>(buffer);
  static_cast<void>(first);
  return good.deallocate(good.self, buffer, stream);
}

// Leaks what it made for an allocation if the allocation fails.
bp_status allocate_and_leak(void* self, bp_device* device, const bp_allocate_desc* desc,
                            bp_buffer** out_buffer) {
  Runtime& r = runtime_of(self);
  void* bookkeeping = nullptr;
  constexpr uint64_t kBytes = 64;
  if (r.host.allocate(r.host.self, kBytes, 16, &bookkeeping) != BP_OK) return BP_OUT_OF_MEMORY;
  const bp_status status =
      r.good.allocator.allocate(r.good.allocator.self, device, desc, out_buffer);
  if (status == BP_OK) r.host.deallocate(r.host.self, bookkeeping, kBytes);
  return status;
}

bp_status wrong_statistics(void* self, bp_device* device, uint64_t heap_index,
                           uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  const bp_device_ops& good = runtime_of(self).good.devices;
  const bp_status status =
      good.memory_info(good.self, device, heap_index, out_free_bytes, out_total_bytes);
  if (status == BP_OK) *out_free_bytes = *out_total_bytes + 1;
  return status;
}

void bend_memory(Runtime& r) {
  static_cast<void>(pool_of(r));
  if (r.strength == "align") {
    if (r.bent.allocator.address != nullptr) r.bent.allocator.address = misaligned_address;
  } else if (r.strength == "size") {
    r.bent.allocator.buffer_info = rounded_size;
  } else if (r.strength == "unmap") {
    r.bent.allocator.unmap = unmap_anything;
  } else if (r.strength == "null") {
    r.bent.allocator.deallocate = free_without_looking;
  } else if (r.strength == "leak") {
    r.bent.allocator.allocate = allocate_and_leak;
  } else if (r.strength == "statistics") {
    r.bent.devices.memory_info = wrong_statistics;
  } else {
    r.bent.allocator.allocate = allocate_pooled;
    r.bent.allocator.deallocate = free_at_once;
  }
}

void bend_recycling(Runtime& r) {
  static_cast<void>(pool_of(r));
  r.bent.allocator.allocate = allocate_pooled;
  r.bent.allocator.deallocate = free_for_later;
  if (r.good.allocator.address_info != nullptr) r.bent.allocator.address_info = find_in_use;
}

constexpr RuntimeMutant kTable[] = {
    {.id = "27", .bend = bend_memory, .end = empty_pool},
    {.id = "benign_recycle", .bend = bend_recycling, .end = empty_pool, .has_layouts = true},
};

}  // namespace

std::span<const RuntimeMutant> memory_mutants() { return kTable; }

}  // namespace bp::mutants
