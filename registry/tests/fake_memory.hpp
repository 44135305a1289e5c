// A device of the test's own process for tests of the memory services: host memory in three heaps,
// streams that run when the test says so, and events. It counts its buffers and events.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "registry/services/cache_set.hpp"

namespace bp::services {

struct FakeMemory {
  struct Buffer {
    std::unique_ptr<unsigned char[]> bytes;
    uint64_t size_bytes;
    bp_allocate_desc desc;
  };

  struct Event {
    bool is_done = false;
    bp_status status = BP_OK;
    std::vector<std::function<void(bp_status)>> callbacks;
  };
  using Work = std::function<bool()>;  // Returns false if it must wait.

  std::map<bp_stream*, std::deque<Work>> queues;
  std::map<bp_event*, std::shared_ptr<Event>> event_of;
  bool has_host_signals = true;
  bool has_on_complete = true;
  std::map<bp_buffer*, Buffer> buffers;
  uint64_t limit_bytes = UINT64_MAX, used_bytes = 0;
  bool events_are_done = false;
  int live_events = 0, maps = 0, copies = 0;
  bp_status record_status = BP_OK;

  bp_heap heaps[3] = {make_heap(BP_HEAP_DEVICE_LOCAL), make_heap(BP_HEAP_HOST_VISIBLE), {}};
  bp_device_properties properties{.struct_size = sizeof(bp_device_properties),
                                  .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                  .heaps = heaps,
                                  .heap_count = 3,
                                  .heap_stride_bytes = sizeof(bp_heap)};
  bp_device_ops devices{.struct_size = sizeof(bp_device_ops), .self = this};
  bp_allocator_ops allocator{.struct_size = sizeof(bp_allocator_ops), .self = this};
  bp_stream_ops streams{.struct_size = sizeof(bp_stream_ops), .self = this};
  bp_event_ops events{.struct_size = sizeof(bp_event_ops), .self = this};
  bp_target target{.name = "fake:0",
                   .device = reinterpret_cast<bp_device*>(this),
                   .properties = &properties,
                   .devices = &devices,
                   .allocator = &allocator,
                   .streams = &streams,
                   .events = &events,
                   .default_stream = stream(1)};
  Cache* first = nullptr;
  std::unique_ptr<CacheSet> caches;

  static FakeMemory& from(void* self) { return *static_cast<FakeMemory*>(self); }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the streams of tests are numbers.
  static bp_stream* stream(uintptr_t i) { return reinterpret_cast<bp_stream*>(i * 16); }

  FakeMemory() {
    conduct_memory();
    conduct_copies();
    conduct_events();
    conduct_streams();
    first = new Cache(target, false);
    caches = std::make_unique<CacheSet>(target, false, *first);
  }
  FakeMemory(const FakeMemory&) = delete;
  ~FakeMemory() {
    run();
    unload();
    EXPECT_TRUE(buffers.empty()) << "buffers leaked";
    EXPECT_EQ(live_events, 0) << "events leaked";
    EXPECT_EQ(maps, 0) << "maps leaked";
  }

  static unsigned char* bytes(const bp_buffer_ref& ref) {
    return reinterpret_cast<unsigned char*>(ref.buffer) + ref.byte_offset;
  }

  void submit(bp_stream* on, Work work) { queues[on].push_back(std::move(work)); }

  // Runs all work that need not wait.
  void run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (auto& [on, queue] : queues) {
        while (!queue.empty() && queue.front()()) {
          queue.pop_front();
          goes_on = true;
        }
      }
    }
  }

  // Ends the caches as the unload of a plugin does.
  void unload() {
    if (caches == nullptr) return;
    EXPECT_EQ(caches->release(), BP_OK);
    EXPECT_EQ(Cache::release(first), BP_OK);
    caches = nullptr;
  }

  // Takes a block as bp_block_allocate_with() does.
  bp_block* take(const bp_block_desc& desc, const PrivatePool* pool = nullptr,
                 bp_stream* on = stream(1)) {
    bp_block* block = nullptr;
    Source source;
    EXPECT_EQ(read_source(target, desc, source), BP_OK) << bp_error_text();
    EXPECT_EQ(caches->get(source, pool).allocate(on, desc.size_bytes, &block), BP_OK);
    return block;
  }
  bp_block* take(uint64_t size_bytes, const PrivatePool* pool = nullptr) {
    return take({.size_bytes = size_bytes}, pool);
  }

 private:
  static bp_heap make_heap(bp_heap_flags flags) {
    return {.struct_size = sizeof(bp_heap),
            .struct_type = BP_STRUCT_HEAP,
            .size_bytes = 1ull << 40,
            .max_allocation_bytes = 1ull << 40,
            .tensor_offset_alignment_bytes = 1,
            .suballocation_granularity_bytes = 1,
            .flags = flags};
  }

  void conduct_memory() {
    allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                            bp_buffer** out) -> bp_status {
      FakeMemory& f = from(self);
      if (f.used_bytes + desc->size_bytes > f.limit_bytes) return BP_OUT_OF_MEMORY;
      Buffer buffer{std::make_unique<unsigned char[]>(desc->size_bytes), desc->size_bytes, *desc};
      *out = reinterpret_cast<bp_buffer*>(buffer.bytes.get());
      f.buffers[*out] = std::move(buffer);
      f.used_bytes += desc->size_bytes;
      return BP_OK;
    };
    allocator.deallocate = [](void* self, bp_buffer* buffer, bp_stream*) -> bp_status {
      FakeMemory& f = from(self);
      f.used_bytes -= f.buffers.at(buffer).size_bytes;
      f.buffers.erase(buffer);
      return BP_OK;
    };
    allocator.address = [](void*, bp_buffer* buffer, uint64_t* out) -> bp_status {
      *out = reinterpret_cast<uintptr_t>(buffer);
      return BP_OK;
    };
    allocator.buffer_info = [](void* self, bp_buffer* buffer, bp_buffer_info* info) -> bp_status {
      info->device = from(self).target.device;
      info->size_bytes = from(self).buffers.at(buffer).size_bytes;
      return BP_OK;
    };
    allocator.map = [](void* self, const bp_buffer_ref* range, void** out) -> bp_status {
      ++from(self).maps;
      *out = bytes(*range);
      return BP_OK;
    };
    allocator.unmap = [](void* self, bp_buffer*, void*) -> bp_status {
      --from(self).maps;
      return BP_OK;
    };
    devices.memory_info = [](void* self, bp_device*, uint64_t, uint64_t* free_bytes,
                             uint64_t* total_bytes) -> bp_status {
      *total_bytes = from(self).limit_bytes;
      *free_bytes = *total_bytes - from(self).used_bytes;
      return BP_OK;
    };
  }

  void conduct_copies() {
    allocator.copy_from_host = [](void* self, bp_stream* on, const bp_buffer_ref* dst,
                                  const void* src, bp_borrow borrow) -> bp_status {
      const auto* const begin = static_cast<const unsigned char*>(src);
      std::vector<unsigned char> staged;
      const bool is_staged = borrow == BP_BORROW_DURING_CALL;
      if (is_staged) staged.assign(begin, begin + dst->size_bytes);
      from(self).submit(on, [=, ref = *dst] {
        std::memcpy(bytes(ref), is_staged ? staged.data() : begin, ref.size_bytes);
        return true;
      });
      return BP_OK;
    };
    allocator.copy_to_host = [](void* self, bp_stream* on, void* dst, const bp_buffer_ref* src,
                                bp_borrow borrow, uint64_t) -> bp_status {
      from(self).submit(on, [dst, ref = *src] {
        std::memcpy(dst, bytes(ref), ref.size_bytes);
        return true;
      });
      if (borrow == BP_BORROW_DURING_CALL) from(self).run();
      return BP_OK;
    };
    allocator.copy = [](void* self, bp_stream* on, const bp_buffer_ref* dst,
                        const bp_buffer_ref* src) -> bp_status {
      ++from(self).copies;
      from(self).submit(on, [to = *dst, from = *src] {
        std::memcpy(bytes(to), bytes(from), to.size_bytes);
        return true;
      });
      return BP_OK;
    };
    allocator.copy_peer = [](void*, bp_stream*, const bp_buffer_ref*,
                             const bp_buffer_ref*) -> bp_status { return BP_UNSUPPORTED; };
    streams.is_capturing = [](void*, bp_stream*, uint32_t*) -> bp_status { return BP_UNSUPPORTED; };
    streams.synchronize = [](void* self, bp_stream*, uint64_t) -> bp_status {
      from(self).run();
      return BP_OK;
    };
    streams.add_callback = [](void* self, bp_stream* on, bp_stream_callback_fn* callback,
                              void* user_data) -> bp_status {
      from(self).submit(on, [=] {
        callback(user_data, BP_OK);
        return true;
      });
      return BP_OK;
    };
    streams.wait_event = [](void* self, bp_stream* on, bp_event* event) -> bp_status {
      from(self).submit(on, [e = from(self).event_of.at(event)] { return e->is_done; });
      return BP_OK;
    };
  }

  static void finish(Event& event, bp_status status) {
    event.is_done = true;
    event.status = status;
    for (const auto& callback : std::exchange(event.callbacks, {})) callback(status);
  }

  void conduct_events() {
    events.signal = [](void* self, bp_event* event, bp_status status) -> bp_status {
      finish(*from(self).event_of.at(event), status);
      return BP_OK;
    };
    events.on_complete = [](void* self, bp_event* event, bp_stream_callback_fn* callback,
                            void* user_data) -> bp_status {
      if (!from(self).has_on_complete) return BP_UNSUPPORTED;
      Event& e = *from(self).event_of.at(event);
      if (e.is_done) {
        callback(user_data, e.status);
      } else {
        e.callbacks.emplace_back([=](bp_status status) { callback(user_data, status); });
      }
      return BP_OK;
    };
  }

  void conduct_streams() {
    events.create = [](void* self, bp_device*, const bp_event_desc* desc,
                       bp_event** out) -> bp_status {
      FakeMemory& f = from(self);
      if (desc != nullptr && !f.has_host_signals) return BP_UNSUPPORTED;
      auto made = std::make_shared<Event>();
      *out = reinterpret_cast<bp_event*>(made.get());
      f.event_of[*out] = std::move(made);
      ++f.live_events;
      return BP_OK;
    };
    events.destroy = [](void* self, bp_event* event) -> bp_status {
      from(self).event_of.erase(event);
      --from(self).live_events;
      return BP_OK;
    };
    events.record = [](void* self, bp_event* event, bp_stream* on) -> bp_status {
      FakeMemory& f = from(self);
      if (f.record_status != BP_OK) return f.record_status;
      f.submit(on, [e = f.event_of.at(event)] {
        finish(*e, BP_OK);
        return true;
      });
      return BP_OK;
    };
    events.query = [](void* self, bp_event* event, uint32_t* done) -> bp_status {
      *done = from(self).events_are_done || from(self).event_of.at(event)->is_done;
      return BP_OK;
    };
    events.synchronize = [](void*, bp_event*, uint64_t) -> bp_status { return BP_OK; };
  }
};

}  // namespace bp::services
