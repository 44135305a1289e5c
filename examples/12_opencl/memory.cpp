#include "memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "backend.hpp"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/landing.hpp"
#include "backplane/shell/memory_ops.hpp"

namespace acme_opencl {

std::unique_ptr<Buffer> MemoryTraits::allocate(Device& d, const bp_allocate_desc& request) {
  bp::check_allocation(request, {.peer = "devices reach their own memory alone",
                                 .exported = "memory of this device stays in its process",
                                 .collective = "this device is in no process group"});
  if ((request.usage & BP_MEMORY_STREAM_ORDERED) != 0 &&
      &stream_of(request.stream, "allocate").device->card() != &d.card()) {
    bp::refuse_two_devices("allocate", "device");
  }
  static_cast<void>(bp::find_heap(d.properties(), request));
  bp::check_size(d.heap(), request.size_bytes, "allocate");
  d.allocations().count();
  return std::make_unique<Buffer>(d,
                                  std::make_shared<Memory>(d.card().context(), request.size_bytes));
}

// The memory ends behind the work that is in the stream.
bp_status MemoryTraits::deallocate(const Instance&, Buffer& buffer, Stream* stream) {
  const std::unique_ptr<Buffer> ended = bp::take_back(buffer);
  if (stream == nullptr) return BP_OK;
  return stream->queue->submit_always([memory = ended->take_memory()](const bp::Outcome&) {},
                                      false);
}

std::unique_ptr<Buffer> MemoryTraits::wrap(Device&, uint64_t, uint64_t) {
  bp::refuse(BP_UNSUPPORTED, "wrap_address: buffers of this device are handles alone");
}

// ---- Copies and fills ---------------------------------------------------------------------------

bp_status MemoryTraits::copy(const Instance&, Stream& s, const Range& dst, const Range& src,
                             const char*) {
  const Use to = use_of(dst, true), from = use_of(src, false);
  return s.queue->submit_work({from, to}, [=](CommandQueue& queue) {
    if (to.size_bytes > 0) queue.copy(to.place, from.place, to.size_bytes);
  });
}

void MemoryTraits::check_peers(const Instance&, const Buffer& dst, const Buffer& src) {
  if (dst.device == src.device) return;
  bp::refuse(BP_UNSUPPORTED, "copy_peer: devices reach their own memory alone");
}

bp_status MemoryTraits::copy_from_host(const Instance&, Stream& s, const Range& dst,
                                       const void* src, bp_borrow borrow) {
  const Use to = use_of(dst, true);
  const auto* from = static_cast<const std::byte*>(src);
  std::shared_ptr<std::byte[]> staged;
  if (borrow == BP_BORROW_DURING_CALL) {
    // The caller may overwrite its bytes as soon as this function returns.
    staged = std::make_shared_for_overwrite<std::byte[]>(to.size_bytes);
    bp::copy_bytes(staged.get(), src, to.size_bytes);
    from = staged.get();
  }
  return s.queue->submit_work({to}, [=](CommandQueue& queue) {
    if (to.size_bytes > 0) queue.write(to.place, from, to.size_bytes, staged);
  });
}

bp_status MemoryTraits::copy_to_host(const Instance&, Stream& s, void* dst, const Range& src,
                                     bp_borrow borrow, uint64_t timeout_ns) {
  const Use from = use_of(src, false);
  const std::shared_ptr<Lane> lane = s.queue;
  const bp::Landing landing(dst, from.size_bytes, borrow, timeout_ns);
  const bp_status status = lane->submit_work(
      {from}, [=, to = landing.address(), kept = landing.kept()](CommandQueue& queue) {
        if (from.size_bytes > 0) queue.read(to, from.place, from.size_bytes, kept);
      });
  if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
  lane->finish_behind();
  return landing.wait_for(*lane);
}

bp_status MemoryTraits::fill(const Instance&, Stream& s, const Range& dst, const std::byte* pattern,
                             uint64_t pattern_size_bytes) {
  const Use to = use_of(dst, true);
  std::array<std::byte, bp::kMaxPatternBytes> kept{};
  std::copy_n(pattern, pattern_size_bytes, kept.begin());
  return s.queue->submit_work({to}, [=](CommandQueue& queue) {
    if (to.size_bytes > 0) queue.fill(to.place, to.size_bytes, kept.data(), pattern_size_bytes);
  });
}

constinit const bp_allocator_ops kAllocator = bp::MemoryOps<MemoryTraits>::table();

}  // namespace acme_opencl
