#include "backends/cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/memory_ops.hpp"

namespace bp::cpu {
namespace {

// Why memory is not allocated for process groups, or NULL if it is.
#if BP_CPU_HAS_GROUPS
constexpr const char* kCollective = nullptr;
#else
constexpr const char* kCollective = "this device has no process groups";
#endif

constexpr uint64_t kAlignmentBytes = 64;  // The size of a cache line and of the widest vector.

// A large buffer begins at a large page. The processor then looks up fewer addresses, and its
// prefetcher reads on: a product of a bf16 matrix of 32 MiB by a vector reads 37 instead of 32 GB/s
// on one thread.
constexpr uint64_t kHugePageBytes = 2 << 20;
constexpr uint64_t kLargeBytes = 4 * kHugePageBytes;

// Throws StatusError for a request that the device does not take. There is one heap.
void check_request(Device& d, const bp_allocate_desc& desc) {
  check_allocation(desc, {.peer = "this device has no peers", .collective = kCollective});
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0) stream_of(desc.stream, "allocate");
  find_heap(d.properties(), desc);
  check_size(d.heap(), desc.size_bytes, "allocate");
}

// Asks the system for large pages. Without them it maps the memory in small ones.
void advise_huge_pages(std::byte* begin, uint64_t size_bytes) {
#ifdef MADV_HUGEPAGE
  madvise(begin, size_bytes, MADV_HUGEPAGE);
#else
  static_cast<void>(begin), static_cast<void>(size_bytes);
#endif
}

void allocate_private(Buffer& buffer, uint64_t alignment_bytes) {
  const uint64_t size_bytes = buffer.size_bytes;
  const bool is_large = size_bytes >= kLargeBytes;
  const uint64_t alignment = std::max(alignment_bytes, is_large ? kHugePageBytes : kAlignmentBytes);
  // The size that aligned_alloc() gets must be a multiple of the alignment.
  const uint64_t lines = std::max<uint64_t>(1, (size_bytes + alignment - 1) / alignment);
  buffer.memory.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, lines * alignment)));
  if (buffer.memory == nullptr) {
    refuse(BP_OUT_OF_MEMORY, "allocate: " + std::to_string(size_bytes) +
                                 " bytes were asked for, and the system has no room");
  }
  buffer.address = buffer.memory.get();
  if (is_large) advise_huge_pages(buffer.address, lines * alignment);
}

}  // namespace

std::unique_ptr<Buffer> MemoryTraits::allocate(Device& d, const bp_allocate_desc& request) {
  check_request(d, request);
  d.allocations().count();
  auto b = std::make_unique<Buffer>(d, request.size_bytes);
  if ((request.usage & BP_MEMORY_EXPORT) != 0) {
    allocate_shared(*b);
  } else {
    allocate_private(*b, request.alignment_bytes);
  }
  return b;
}

const Layouts* MemoryTraits::layouts_of(const Instance& i) {
  return static_cast<const FullInstance&>(i).layouts.get();
}

bp_status MemoryTraits::deallocate(const Instance&, Buffer& buffer, const Stream* stream) {
  if (stream == nullptr) {
    take_back(buffer);
    return BP_OK;
  }
  return stream->queue->submit_always([&buffer](const Outcome&) { take_back(buffer); }, true);
}

void Buffer::check_access(const char* call, const char* name, const bp_buffer_ref& range,
                          bp_access access) const {
  if (reservation == nullptr) return;
  reservation->check(std::string(call) + ": " + name, range.byte_offset, range.size_bytes, access);
}

constinit const bp_allocator_ops kAllocator = MemoryOps<MemoryTraits>::table();

}  // namespace bp::cpu
