// A device for tests whose buffers are host memory, so that a test can damage every byte.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "backplane/host.h"

namespace bp::conformance {

// A device whose buffers are host memory, and where nothing is asynchronous.
struct FakeMemory {
  struct Buffer {
    std::byte* bytes;
    uint64_t size_bytes;
    std::unique_ptr<std::byte[]> own;  // NULL for registered memory.
  };

  std::map<bp_buffer*, Buffer> buffers;
  uint64_t fails_from_bytes = UINT64_MAX;  // Allocations of at least this many bytes fail.
  bp_heap heap{.struct_size = sizeof(bp_heap),
               .struct_type = BP_STRUCT_HEAP,
               .tensor_offset_alignment_bytes = 1};
  bp_device_properties properties{.struct_size = sizeof(properties),
                                  .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                  .heaps = &heap,
                                  .heap_count = 1};
  bp_allocator_ops allocator{.struct_size = sizeof(allocator),
                             .struct_type = BP_STRUCT_ALLOCATOR_OPS};
  bp_stream_ops streams{.struct_size = sizeof(streams), .struct_type = BP_STRUCT_STREAM_OPS};
  bp_target target{};

  FakeMemory() {
    allocator.self = streams.self = this;
    allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                            bp_buffer** out) -> bp_status {
      return from(self).add(std::make_unique<std::byte[]>(desc->size_bytes), nullptr,
                            desc->size_bytes, out);
    };
    allocator.register_host = [](void* self, bp_device*, void* memory, uint64_t size_bytes,
                                 bp_buffer** out) -> bp_status {
      return from(self).add(nullptr, static_cast<std::byte*>(memory), size_bytes, out);
    };
    allocator.deallocate = [](void* self, bp_buffer* buffer, bp_stream*) -> bp_status {
      EXPECT_EQ(from(self).buffers.erase(buffer), 1u);
      return BP_OK;
    };
    allocator.unregister_host = [](void* self, bp_buffer* buffer) -> bp_status {
      EXPECT_EQ(from(self).buffers.erase(buffer), 1u);
      return BP_OK;
    };
    allocator.copy_from_host = [](void* self, bp_stream*, const bp_buffer_ref* dst, const void* src,
                                  bp_borrow) -> bp_status {
      std::memcpy(from(self).at(*dst), src, dst->size_bytes);
      return BP_OK;
    };
    allocator.copy_to_host = [](void* self, bp_stream*, void* dst, const bp_buffer_ref* src,
                                bp_borrow, uint64_t) -> bp_status {
      std::memcpy(dst, from(self).at(*src), src->size_bytes);
      return BP_OK;
    };
    streams.synchronize = [](void*, bp_stream*, uint64_t) -> bp_status { return BP_OK; };
    target.properties = &properties;
    target.allocator = &allocator;
    target.streams = &streams;
  }
  FakeMemory(const FakeMemory&) = delete;

  static FakeMemory& from(void* self) { return *static_cast<FakeMemory*>(self); }

  bp_status add(std::unique_ptr<std::byte[]> own, std::byte* bytes, uint64_t size_bytes,
                bp_buffer** out) {
    if (size_bytes >= fails_from_bytes) return BP_OUT_OF_MEMORY;
    std::byte* const place = own ? own.get() : bytes;
    *out = reinterpret_cast<bp_buffer*>(place);
    buffers[*out] = {place, size_bytes, std::move(own)};
    return BP_OK;
  }

  std::byte* at(const bp_buffer_ref& ref) {
    const Buffer& buffer = buffers.at(ref.buffer);
    if (ref.byte_offset + ref.size_bytes > buffer.size_bytes) throw std::out_of_range("a copy");
    return buffer.bytes + ref.byte_offset;
  }
};

}  // namespace bp::conformance
