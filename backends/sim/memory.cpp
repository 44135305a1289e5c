#include "backends/sim/memory.hpp"

#include <algorithm>
#include <string>

#include "backends/sim/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/memory_ops.hpp"

namespace bp::sim {
namespace {

// ---- Allocation ---------------------------------------------------------------------------------

void check_request(const Device& d, const bp_allocate_desc& desc) {
  const Options& options = d.options();
  check_allocation(desc, {.peer = options.has_peers ? nullptr : "option peer is no",
                          .exported = options.has_sharing ? nullptr : "option sharing is no"});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0 &&
      &stream_of(desc.stream, "allocate").device->card() != &d.card()) {
    refuse_two_devices("allocate", "device");
  }
}

std::unique_ptr<Buffer> make_buffer(Device& d, const bp_allocate_desc& desc) {
  const size_t heap = find_heap(d.properties(), desc);
  check_size(d.heap(heap), desc.size_bytes, "allocate");
  d.allocations().count();
  const auto lends = [&](const std::shared_ptr<Memory>& memory) {
    return std::make_unique<Buffer>(d, BufferKind::kAllocated, memory);
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

// Returns a text about the bytes that were written behind the end of a buffer, or "" if there are
// none.
std::string damage_text(Memory& memory) {
  const Memory::Damage damage = memory.damage();
  if (damage.count == 0) return "";
  return "deallocate: " + std::to_string(damage.count) + " bytes behind the end of a buffer of " +
         std::to_string(memory.size_bytes()) + " were overwritten, the first at " +
         std::to_string(damage.first_byte);
}

// The value that a host reads if it did not call invalidate().
constexpr std::byte kStale{0xCD};

// Returns the lines of the simulated cache that a range touches: memory that is not coherent moves
// by whole lines.
Range lines_of(const Range& range) {
  const Buffer& b = range.buffer;
  if (range.size_bytes == 0) return range;
  const uint64_t line = b.device->heap(b.heap).map_granularity_bytes;
  const uint64_t begin = range.byte_offset / line * line;
  const uint64_t end = (range.byte_offset + range.size_bytes + line - 1) / line * line;
  return {range.buffer, begin, std::min(end, b.size_bytes) - begin};
}

}  // namespace

std::unique_ptr<Buffer> MemoryTraits::allocate(Device& d, const bp_allocate_desc& request) {
  check_request(d, request);
  return make_buffer(d, request);
}

bp_status MemoryTraits::deallocate(const Instance& i, Buffer& buffer, Stream* stream) {
  const std::unique_ptr<Buffer> ended = take_back(buffer);
  if (ended->kind != BufferKind::kAllocated) return BP_OK;
  const auto end = [memory = ended->memory, &host = *i.host] {
    const std::string text = damage_text(*memory);
    memory->discard();
    if (text.empty()) return;
    host.log_line(host.self, BP_LOG_ERROR, text.c_str());
    throw DataFailure(BP_INTERNAL, text);
  };
  if (stream != nullptr) {
    return stream->queue->submit_always([end](const Outcome&) { end(); }, false);
  }
  try {
    end();
  } catch (const DataFailure&) {
    // The text goes to the log alone, because no stream can carry the failure.
  }
  return BP_OK;
}

const char* MemoryTraits::why_no_address(const Instance& i) {
  return i.options.has_addresses ? nullptr : "option addresses is no: buffers are handles alone";
}

const Layouts* MemoryTraits::layouts_of(const Instance& i) { return i.layouts.get(); }

// ---- Mapping ------------------------------------------------------------------------------------

void MemoryTraits::check_map(const Buffer& b) {
  check_mappable((b.heap_flags() & BP_HEAP_HOST_VISIBLE) != 0, b.is_stream_ordered);
  if (b.kind == BufferKind::kRange) {
    refuse(BP_UNSUPPORTED, "map: the buffer is a reserved range, which has no heap of its own");
  }
}

void* MemoryTraits::map(const Range& range) {
  Buffer& b = range.buffer;
  if (b.has_shadow()) {
    if (b.shadow.empty()) b.shadow.resize(b.size_bytes, kStale);
    return b.shadow.data() + range.byte_offset;
  }
  use_of(range, Access::kWrite).open();
  return b.address() + range.byte_offset;
}

void MemoryTraits::unmap(const Buffer& b) {
  if (!b.has_shadow()) b.memory->close(Access::kWrite);
}

void MemoryTraits::flush(const Range& range) {
  const std::lock_guard lock(range.buffer.mutex);
  if (range.buffer.shadow.empty()) return;
  const Range lines = lines_of(range);
  const std::vector<Use> use{use_of(lines, Access::kWrite)};
  const OpenUses open(use);
  copy_bytes(use[0].address(), lines.buffer.shadow.data() + lines.byte_offset, lines.size_bytes);
}

void MemoryTraits::invalidate(const Range& range) {
  const std::lock_guard lock(range.buffer.mutex);
  if (range.buffer.shadow.empty()) return;
  const Range lines = lines_of(range);
  const std::vector<Use> use{use_of(lines, Access::kRead)};
  const OpenUses open(use);
  copy_bytes(lines.buffer.shadow.data() + lines.byte_offset, use[0].address(), lines.size_bytes);
}

// ---- Ranges -------------------------------------------------------------------------------------

void Buffer::check_access(const char* call, const char* name, const bp_buffer_ref& range,
                          bp_access access) const {
  memory->check(std::string(call) + ": " + name, first_byte + range.byte_offset, range.size_bytes,
                access == BP_ACCESS_READ ? Access::kRead : Access::kWrite);
}

Use use_of(const bp_buffer_ref& range, Access access, const char* call, const char* what) {
  const bp_access asked = access == Access::kRead ? BP_ACCESS_READ : BP_ACCESS_READ_WRITE;
  return use_of(checked_range<Buffer>(&range, call, what, asked), access);
}

constinit const bp_allocator_ops kAllocator = MemoryOps<MemoryTraits>::table();

}  // namespace bp::sim
