// The rules of the slots of devices, memory and profilers.
#include <algorithm>

#include "registry/layers/validate.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

// ---- Devices ------------------------------------------------------------------------------------

bp_status ValidateLayer::call(At<Slot::device_enumerate>, Continue next, uint64_t capacity,
                              bp_device** out_devices, uint64_t* out_device_count) {
  const bp_status status = next();
  if (status != BP_OK || out_devices == nullptr) return status;
  const std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < std::min(capacity, *out_device_count); ++i) {
    handles_.add_device(out_devices[i]);
  }
  return status;
}

bp_status ValidateLayer::call(At<Slot::device_properties>, Continue next, bp_device* device,
                              const bp_device_properties** out_properties) {
  const bp_status status = next();
  if (status != BP_OK || *out_properties == nullptr) return status;
  const bp_device_properties& p = **out_properties;
  const auto* bytes = reinterpret_cast<const unsigned char*>(p.heaps);
  std::vector<bp_heap_flags> flags;
  for (uint64_t i = 0; i < p.heap_count; ++i) {
    flags.push_back(reinterpret_cast<const bp_heap*>(bytes + i * p.heap_stride_bytes)->flags);
  }
  const std::lock_guard lock(mutex_);
  heaps_[device] = std::move(flags);
  return status;
}

bp_status ValidateLayer::call(At<Slot::device_synchronize>, Continue next, bp_device* device,
                              uint64_t /*timeout_ns*/) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_device(device);
  return status;
}

bp_status ValidateLayer::call(At<Slot::device_reset>, Continue next, bp_device* device) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_device(device);
  handles_.lose_all(device);
  return status;
}

// When a recording of activity ends, the host has waited for the work.
bp_status ValidateLayer::call(At<Slot::profiler_stop>, Continue next, bp_device* device,
                              uint64_t /*timeout_ns*/) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_device(device);
  return status;
}

// ---- Memory -------------------------------------------------------------------------------------

bp_status ValidateLayer::made_buffer(bp_status status, bp_device* device, uint64_t size_bytes,
                                     bp_buffer** out_buffer) {
  if (status != BP_OK || out_buffer == nullptr) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(HandleKind::buffer, *out_buffer, {.device = device, .size_bytes = size_bytes});
  hazards_.remove_buffer(*out_buffer);
  return status;
}

bool ValidateLayer::is_concurrent(bp_device* device, const bp_allocate_desc& desc) const {
  const auto heaps = heaps_.find(device);
  if (heaps == heaps_.end()) return false;
  for (uint64_t i = 0; i < heaps->second.size(); ++i) {
    const bp_heap_flags flags = heaps->second[i];
    const bool is_allowed = desc.heap_mask == 0 || (desc.heap_mask >> i & 1) != 0;
    if (is_allowed && (desc.heap_flags & ~flags) == 0)
      return (flags & BP_HEAP_HOST_CONCURRENT) != 0;
  }
  return false;
}

bp_status ValidateLayer::call(At<Slot::memory_allocate>, Continue next, bp_device* device,
                              const bp_allocate_desc* desc, bp_buffer** out_buffer) {
  const bp_status status =
      made_buffer(next(), device, desc == nullptr ? 0 : requested_bytes(*desc), out_buffer);
  if (status != BP_OK || desc == nullptr) return status;
  {
    const std::lock_guard lock(mutex_);
    Handle* buffer = handles_.find(HandleKind::buffer, *out_buffer);
    if (buffer != nullptr) buffer->is_concurrent = is_concurrent(device, *desc);
  }
  if ((desc->usage & BP_MEMORY_STREAM_ORDERED) == 0) return status;
  // The memory exists from here on in the order of its stream. Other streams need an event.
  const auto nothing = [] { return bp_status{BP_OK}; };
  const bp_buffer_ref whole{*out_buffer, 0, requested_bytes(*desc)};
  return submit(Slot::memory_allocate, desc->stream, {{footprint_of(whole), true}},
                "its allocation", Continue(nothing));
}

bp_status ValidateLayer::call(At<Slot::memory_deallocate>, Continue next, bp_buffer* buffer,
                              bp_stream* stream) {
  if (buffer == nullptr) return next();
  std::vector<Hazard> hazards;
  {
    const std::lock_guard lock(mutex_);
    const Handle* known = handles_.find(HandleKind::buffer, buffer);
    const uint64_t size_bytes = known == nullptr ? 0 : known->size_bytes;
    const Footprint whole = footprint_of(bp_buffer_ref{buffer, 0, size_bytes});
    uint64_t epoch = 0;
    hazards = stream == nullptr ? hazards_.host_touches(whole, true)
                                : hazards_.submit(stream, {{whole, true}}, {"its free", 0}, &epoch);
    hazards_.remove_buffer(buffer);
  }
  // A failure here would leak the memory. The hazard is a line in the log in any case.
  static_cast<void>(racy(Slot::memory_deallocate, "MEMORY-5", {"its free", 0}, hazards, stream));
  return end_through(HandleKind::buffer, buffer, Slot::memory_deallocate, next);
}

bp_status ValidateLayer::call(At<Slot::memory_map>, Continue next, const bp_buffer_ref* range,
                              void** out_pointer) {
  std::vector<Hazard> hazards;
  if (range != nullptr) {
    const std::lock_guard lock(mutex_);
    const Handle* buffer = handles_.find(HandleKind::buffer, range->buffer);
    if (buffer != nullptr && !buffer->is_concurrent) {
      hazards = hazards_.host_touches(footprint_of(*range), true);
    }
  }
  bp_status status = racy(Slot::memory_map, "MEMORY-6", {"the host", 0}, hazards, nullptr);
  if (status == BP_OK) status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (Handle* buffer = handles_.find(HandleKind::buffer, range->buffer)) {
    buffer->maps.push_back(*out_pointer);
  }
  return status;
}

bp_status ValidateLayer::call(At<Slot::memory_unmap>, Continue next, bp_buffer* buffer,
                              void* pointer) {
  {
    std::unique_lock lock(mutex_);
    const Handle* known = handles_.find(HandleKind::buffer, buffer);
    if (known != nullptr && std::ranges::count(known->maps, pointer) == 0) {
      return illegal(lock, Slot::memory_unmap,
                     "[MEMORY-22] no map of buffer " + words(buffer) + " with pointer " +
                         words(pointer) + " is open");
    }
  }
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (Handle* known = handles_.find(HandleKind::buffer, buffer)) {
    const auto ended = std::ranges::find(known->maps, pointer);
    if (ended != known->maps.end()) known->maps.erase(ended);
  }
  return status;
}

bp_status ValidateLayer::call(At<Slot::memory_copy>, Continue next, bp_stream* stream,
                              const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  if (dst == nullptr || src == nullptr) return next();
  {
    std::unique_lock lock(mutex_);
    std::string defect = wrong_device(stream, dst->buffer);
    if (defect.empty()) defect = wrong_device(stream, src->buffer);
    if (defect.empty() && dst->size_bytes != src->size_bytes) {
      defect = "[MEMORY-7] dst has " + std::to_string(dst->size_bytes) + " bytes, src " +
               std::to_string(src->size_bytes);
    }
    const bool is_same = dst->byte_offset == src->byte_offset;
    if (defect.empty() && !is_same && overlap(footprint_of(*dst), footprint_of(*src))) {
      defect = "[MEMORY-8] " + words(*dst) + " and " + words(*src) + " overlap";
    }
    if (!defect.empty()) return illegal(lock, Slot::memory_copy, defect);
  }
  return submit(Slot::memory_copy, stream,
                {{footprint_of(*dst), true}, {footprint_of(*src), false}}, "copy", next);
}

bp_status ValidateLayer::call(At<Slot::memory_copy_from_host>, Continue next, bp_stream* stream,
                              const bp_buffer_ref* dst, const void* /*src*/, bp_borrow /*borrow*/) {
  if (dst == nullptr) return next();
  {
    std::unique_lock lock(mutex_);
    const std::string defect = wrong_device(stream, dst->buffer);
    if (!defect.empty()) return illegal(lock, Slot::memory_copy_from_host, defect);
  }
  return submit(Slot::memory_copy_from_host, stream, {{footprint_of(*dst), true}}, "copy_from_host",
                next);
}

bp_status ValidateLayer::call(At<Slot::memory_copy_to_host>, Continue next, bp_stream* stream,
                              void* /*dst*/, const bp_buffer_ref* src, bp_borrow borrow,
                              uint64_t /*timeout_ns*/) {
  if (src == nullptr) return next();
  {
    std::unique_lock lock(mutex_);
    const std::string defect = wrong_device(stream, src->buffer);
    if (!defect.empty()) return illegal(lock, Slot::memory_copy_to_host, defect);
  }
  // A copy that ran out of time still reads its source.
  bool is_late = false;
  const auto copy = [&] {
    const bp_status copied = next();
    is_late = copied == BP_TIMEOUT;
    return is_late ? bp_status{BP_OK} : copied;
  };
  const bp_status status = submit(Slot::memory_copy_to_host, stream, {{footprint_of(*src), false}},
                                  "copy_to_host", Continue(copy));
  if (is_late) return BP_TIMEOUT;
  if (status != BP_OK || borrow != BP_BORROW_DURING_CALL) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_stream(stream);
  return status;
}

bp_status ValidateLayer::call(At<Slot::memory_copy_peer>, Continue next, bp_stream* stream,
                              const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  if (dst == nullptr || src == nullptr) return next();
  return submit(Slot::memory_copy_peer, stream,
                {{footprint_of(*dst), true}, {footprint_of(*src), false}}, "copy_peer", next);
}

bp_status ValidateLayer::call(At<Slot::memory_fill>, Continue next, bp_stream* stream,
                              const bp_buffer_ref* dst, const void* /*pattern*/,
                              uint64_t pattern_size_bytes) {
  if (dst == nullptr) return next();
  {
    std::unique_lock lock(mutex_);
    std::string defect = wrong_device(stream, dst->buffer);
    const bool is_size = pattern_size_bytes >= 1 && pattern_size_bytes <= 16;
    if (defect.empty() && (!is_size || dst->size_bytes % pattern_size_bytes != 0)) {
      defect = "[MEMORY-11] a pattern of " + std::to_string(pattern_size_bytes) +
               " bytes does not fill " + std::to_string(dst->size_bytes);
    }
    if (!defect.empty()) return illegal(lock, Slot::memory_fill, defect);
  }
  return submit(Slot::memory_fill, stream, {{footprint_of(*dst), true}}, "fill", next);
}

bp_status ValidateLayer::call(At<Slot::memory_wrap_address>, Continue next, bp_device* device,
                              uint64_t /*address*/, uint64_t size_bytes, bp_buffer** out_buffer) {
  return made_buffer(next(), device, size_bytes, out_buffer);
}

bp_status ValidateLayer::call(At<Slot::memory_register_host>, Continue next, bp_device* device,
                              void* /*memory*/, uint64_t size_bytes, bp_buffer** out_buffer) {
  return made_buffer(next(), device, size_bytes, out_buffer);
}

bp_status ValidateLayer::call(At<Slot::memory_unregister_host>, Continue next, bp_buffer* buffer) {
  {
    const std::lock_guard lock(mutex_);
    hazards_.remove_buffer(buffer);
  }
  return end_through(HandleKind::buffer, buffer, Slot::memory_unregister_host, next);
}

bp_status ValidateLayer::call(At<Slot::memory_import_buffer>, Continue next, bp_device* device,
                              const bp_external_handle* handle, bp_buffer** out_buffer) {
  return made_buffer(next(), device, handle == nullptr ? UINT64_MAX : handle->size_bytes,
                     out_buffer);
}

bp_status ValidateLayer::call(At<Slot::virtual_memory_reserve>, Continue next, bp_device* device,
                              uint64_t size_bytes, bp_buffer** out_range) {
  return made_buffer(next(), device, size_bytes, out_range);
}

bp_status ValidateLayer::call(At<Slot::virtual_memory_release>, Continue next, bp_buffer* range) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  end_handle(HandleKind::buffer, range, Slot::virtual_memory_release);
  hazards_.remove_buffer(range);
  return status;
}

}  // namespace bp::layers
