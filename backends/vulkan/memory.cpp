#include "backends/vulkan/memory.hpp"

#include <cstddef>
#include <string>

#include "backends/vulkan/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/memory_ops.hpp"

namespace bp::vulkan {
namespace {

constexpr uint64_t kLeastAlignmentBytes = 256;  // Workspaces need it.

// ---- Allocation ---------------------------------------------------------------------------------

void check_request(const Device& d, const bp_allocate_desc& desc) {
  check_allocation(desc, {.peer = "devices reach their own memory alone",
                          .exported = "memory of this backend stays in its process"});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0 &&
      &stream_of(desc.stream, "allocate").device->card() != &d.card()) {
    refuse_two_devices("allocate", "device");
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

// Frees memory behind work. The memory lives until the work has ended.
bp_status free_behind(const Stream& s, std::shared_ptr<Memory> memory) {
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

}  // namespace

std::unique_ptr<Buffer> MemoryTraits::allocate(Device& d, const bp_allocate_desc& request) {
  check_request(d, request);
  return make_buffer(d, request);
}

bp_status MemoryTraits::deallocate(const Instance&, Buffer& buffer, const Stream* stream) {
  const std::unique_ptr<Buffer> ended = take_back(buffer);
  if (ended->kind != BufferKind::kAllocated || stream == nullptr) return BP_OK;
  return free_behind(*stream, ended->memory);
}

// ---- Mapping ------------------------------------------------------------------------------------

void MemoryTraits::check_map(const Buffer& b) {
  check_mappable((b.heap_flags() & BP_HEAP_HOST_VISIBLE) != 0, b.is_stream_ordered);
}

void* MemoryTraits::map(const Range& range) {
  const Buffer& b = range.buffer;
  return b.memory->map() + b.first_byte + range.byte_offset;
}

// Memory that the host does not see needs no flush.
void MemoryTraits::flush(const Range& range) {
  const Buffer& b = range.buffer;
  if ((b.heap_flags() & BP_HEAP_HOST_VISIBLE) == 0) return;
  b.memory->flush(b.first_byte + range.byte_offset, range.size_bytes);
}

void MemoryTraits::invalidate(const Range& range) {
  const Buffer& b = range.buffer;
  if ((b.heap_flags() & BP_HEAP_HOST_VISIBLE) == 0) return;
  b.memory->invalidate(b.first_byte + range.byte_offset, range.size_bytes);
}

constinit const bp_allocator_ops kAllocator = MemoryOps<MemoryTraits>::table();

}  // namespace bp::vulkan
