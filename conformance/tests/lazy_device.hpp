// A device for tests, over host memory, whose work begins as late as the contract allows: when
// somebody waits for it, and then that of other streams only as far as it is waited for. Each
// member of Faults breaks one rule of the contract.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bp::conformance {

struct Faults {
  bool forgets_waits = false;      // wait_event() orders nothing.
  bool forgets_signals = false;    // signal() lets nobody go.
  bool forgets_records = false;    // record() captures nothing.
  bool is_last_first = false;      // A stream begins with its latest work.
  bool stages_late = false;        // copy_from_host() reads what it borrowed when the work runs.
  bool reads_late = false;         // copy_to_host() returns before the bytes are there.
  bool fills_short = false;        // fill() leaves its last byte out.
  bool drops_on_destroy = false;   // destroy() of a stream forgets its work.
  bool frees_at_once = false;      // deallocate() does not wait for the work of its stream.
  bp_status copy_status = BP_OK;   // What copy() returns.
  size_t stream_limit = SIZE_MAX;  // create() of one more stream fails.
  size_t buffer_limit = SIZE_MAX;  // allocate() of one more buffer fails.
};

class LazyDevice {
 public:
  struct Buffer {
    std::vector<uint8_t> bytes;
    bool is_freed = false;
  };

  Faults faults;
  bp_target target{};
  size_t live_streams = 0, live_events = 0, live_buffers = 0;

  LazyDevice() {
    fill_memory();
    fill_streams();
    fill_events();
    devices_.self = this;
    devices_.synchronize = [](void* self, bp_device*, uint64_t) -> bp_status {
      from(self).run_everything();
      return BP_OK;
    };
    target.properties = &properties;
    target.devices = &devices_;
    target.allocator = &allocator;
    target.streams = &streams;
    target.events = &events;
    streams.create(this, nullptr, nullptr, &target.default_stream);
    live_streams = 0;
  }
  LazyDevice(const LazyDevice&) = delete;

  static LazyDevice& from(void* self) { return *static_cast<LazyDevice*>(self); }
  static Buffer& buffer(bp_buffer* handle) { return *reinterpret_cast<Buffer*>(handle); }
  static uint8_t* at(const bp_buffer_ref& ref) {
    return buffer(ref.buffer).bytes.data() + ref.byte_offset;
  }

  // Submits work of the test's own, such as that of a kernel.
  static void submit(bp_stream* handle, std::function<void()> run) {
    stream(handle).queue.push_back({[] { return true; }, std::move(run)});
  }
  // What the stream fails with from now on.
  static void fail(bp_stream* handle, bp_status status) { stream(handle).failure = status; }

  // Changed by tests that need other entries.
  bp_allocator_ops allocator{.struct_size = sizeof(allocator),
                             .struct_type = BP_STRUCT_ALLOCATOR_OPS};
  bp_stream_ops streams{.struct_size = sizeof(streams), .struct_type = BP_STRUCT_STREAM_OPS};
  bp_event_ops events{.struct_size = sizeof(events), .struct_type = BP_STRUCT_EVENT_OPS};
  bp_heap heap{.struct_size = sizeof(heap),
               .struct_type = BP_STRUCT_HEAP,
               .size_bytes = 1u << 30,
               .max_allocation_bytes = 1u << 30,
               .tensor_offset_alignment_bytes = 1,
               .suballocation_granularity_bytes = 1};
  bp_device_properties properties{.struct_size = sizeof(properties),
                                  .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                  .name = "Lazy",
                                  .heaps = &heap,
                                  .heap_count = 1,
                                  .heap_stride_bytes = sizeof(bp_heap)};

 private:
  struct Work {
    std::function<bool()> is_ready;
    std::function<void()> run;
  };
  struct Stream {
    std::deque<Work> queue;
    bp_status failure = BP_OK;
  };
  struct Event {
    std::shared_ptr<bool> is_done;  // Of what was captured last.
    bool is_host_signaled;
  };

  static Stream& stream(bp_stream* handle) { return *reinterpret_cast<Stream*>(handle); }
  static Event& event(bp_event* handle) { return *reinterpret_cast<Event*>(handle); }

  // Runs one piece of work; false if there is none that may begin.
  bool step(Stream& on) const {
    if (on.queue.empty()) return false;
    const bool is_last = faults.is_last_first;
    if (!(is_last ? on.queue.back() : on.queue.front()).is_ready()) return false;
    const Work work = std::move(is_last ? on.queue.back() : on.queue.front());
    is_last ? on.queue.pop_back() : on.queue.pop_front();
    work.run();
    return true;
  }
  bool step_of_another(const Stream& than) const {
    for (size_t i = all_streams_.size(); i-- > 0;) {
      if (all_streams_[i].get() != &than && step(*all_streams_[i])) return true;
    }
    return false;
  }
  // False if the stream waits for what does not come.
  bool run_all_of(Stream& on) const {
    while (!on.queue.empty()) {
      if (!step(on) && !step_of_another(on)) return false;
    }
    return true;
  }
  void run_everything() const {
    for (const auto& each : all_streams_) static_cast<void>(run_all_of(*each));
    for (const auto& each : all_streams_) {
      for (; !each->queue.empty(); each->queue.pop_front()) each->queue.front().run();
    }
  }

  void fill_memory();
  void fill_streams();
  void fill_events();

  bp_device_ops devices_{.struct_size = sizeof(devices_), .struct_type = BP_STRUCT_DEVICE_OPS};
  std::vector<std::unique_ptr<Stream>> all_streams_;  // They stay after destroy(), and so do these.
  std::vector<std::unique_ptr<Event>> all_events_;
  std::vector<std::unique_ptr<Buffer>> all_buffers_;
};

inline void LazyDevice::fill_memory() {
  allocator.self = this;
  allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                          bp_buffer** out) -> bp_status {
    LazyDevice& d = from(self);
    if (d.live_buffers >= d.faults.buffer_limit) return BP_OUT_OF_MEMORY;
    d.all_buffers_.push_back(std::make_unique<Buffer>());
    d.all_buffers_.back()->bytes.assign(desc->size_bytes, 0xA5);
    *out = reinterpret_cast<bp_buffer*>(d.all_buffers_.back().get());
    ++d.live_buffers;
    return BP_OK;
  };
  // The memory is given to somebody else, who writes to it.
  allocator.deallocate = [](void* self, bp_buffer* handle, bp_stream* behind) -> bp_status {
    LazyDevice& d = from(self);
    if (handle == nullptr) return BP_OK;
    --d.live_buffers;
    const auto end = [handle] {
      buffer(handle).is_freed = true;
      std::ranges::fill(buffer(handle).bytes, uint8_t{0xEE});
    };
    if (behind == nullptr || d.faults.frees_at_once) return end(), BP_OK;
    submit(behind, end);
    return BP_OK;
  };
  allocator.copy = [](void* self, bp_stream* on, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) -> bp_status {
    if (from(self).faults.copy_status != BP_OK) return from(self).faults.copy_status;
    submit(on, [to = *dst, source = *src] { std::memcpy(at(to), at(source), to.size_bytes); });
    return BP_OK;
  };
  allocator.copy_from_host = [](void* self, bp_stream* on, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) -> bp_status {
    const auto* bytes = static_cast<const uint8_t*>(src);
    if (borrow == BP_BORROW_UNTIL_COMPLETE || from(self).faults.stages_late) {
      submit(on, [to = *dst, bytes] { std::memcpy(at(to), bytes, to.size_bytes); });
    } else {
      submit(on, [to = *dst, staged = std::vector<uint8_t>(bytes, bytes + dst->size_bytes)] {
        std::memcpy(at(to), staged.data(), to.size_bytes);
      });
    }
    return BP_OK;
  };
  allocator.copy_to_host = [](void* self, bp_stream* on, void* dst, const bp_buffer_ref* src,
                              bp_borrow borrow, uint64_t) -> bp_status {
    submit(on, [dst, source = *src] { std::memcpy(dst, at(source), source.size_bytes); });
    if (borrow == BP_BORROW_UNTIL_COMPLETE || from(self).faults.reads_late) return BP_OK;
    return from(self).streams.synchronize(self, on, 0);
  };
  allocator.fill = [](void* self, bp_stream* on, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t size) -> bp_status {
    const auto* bytes = static_cast<const uint8_t*>(pattern);
    bp_buffer_ref to = *dst;
    if (from(self).faults.fills_short) --to.size_bytes;
    submit(on, [to, staged = std::vector<uint8_t>(bytes, bytes + size)] {
      for (uint64_t i = 0; i < to.size_bytes; ++i) at(to)[i] = staged[i % staged.size()];
    });
    return BP_OK;
  };
}

inline void LazyDevice::fill_streams() {
  streams.self = this;
  streams.create = [](void* self, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    LazyDevice& d = from(self);
    if (d.live_streams >= d.faults.stream_limit) return BP_OUT_OF_MEMORY;
    d.all_streams_.push_back(std::make_unique<Stream>());
    *out = reinterpret_cast<bp_stream*>(d.all_streams_.back().get());
    ++d.live_streams;
    return BP_OK;
  };
  streams.destroy = [](void* self, bp_stream* handle) -> bp_status {
    LazyDevice& d = from(self);
    if (handle == nullptr) return BP_OK;
    --d.live_streams;
    if (d.faults.drops_on_destroy) stream(handle).queue.clear();
    return BP_OK;
  };
  streams.query = [](void*, bp_stream* handle, uint32_t* out_done) -> bp_status {
    *out_done = stream(handle).queue.empty() ? 1 : 0;
    return BP_OK;
  };
  streams.status = [](void*, bp_stream* handle) -> bp_status { return stream(handle).failure; };
  streams.clear_failure = [](void*, bp_stream* handle) -> bp_status {
    stream(handle).failure = BP_OK;
    return BP_OK;
  };
  streams.synchronize = [](void* self, bp_stream* handle, uint64_t) -> bp_status {
    if (!from(self).run_all_of(stream(handle))) return BP_TIMEOUT;
    return stream(handle).failure;
  };
  streams.flush = [](void*, bp_stream*) -> bp_status { return BP_OK; };
  streams.wait_event = [](void* self, bp_stream* handle, bp_event* waited) -> bp_status {
    if (from(self).faults.forgets_waits) return BP_OK;
    const std::shared_ptr<bool> is_done = event(waited).is_done;
    stream(handle).queue.push_back({[is_done] { return *is_done; }, [] {}});
    return BP_OK;
  };
  streams.add_callback = [](void*, bp_stream* handle, bp_stream_callback_fn* callback,
                            void* user_data) -> bp_status {
    submit(handle, [=] { callback(user_data, BP_OK); });
    return BP_OK;
  };
}

inline void LazyDevice::fill_events() {
  events.self = this;
  events.create = [](void* self, bp_device*, const bp_event_desc* desc,
                     bp_event** out) -> bp_status {
    LazyDevice& d = from(self);
    const bool is_signaled = desc != nullptr && (desc->flags & BP_EVENT_HOST_SIGNAL) != 0;
    d.all_events_.push_back(
        std::make_unique<Event>(Event{std::make_shared<bool>(!is_signaled), is_signaled}));
    *out = reinterpret_cast<bp_event*>(d.all_events_.back().get());
    ++d.live_events;
    return BP_OK;
  };
  events.destroy = [](void* self, bp_event* handle) -> bp_status {
    if (handle != nullptr) --from(self).live_events;
    return BP_OK;
  };
  events.record = [](void* self, bp_event* handle, bp_stream* on) -> bp_status {
    if (event(handle).is_host_signaled) return BP_INVALID_ARGUMENT;
    if (from(self).faults.forgets_records) return BP_OK;
    event(handle).is_done = std::make_shared<bool>(false);
    submit(on, [is_done = event(handle).is_done] { *is_done = true; });
    return BP_OK;
  };
  events.synchronize = [](void* self, bp_event* handle, uint64_t) -> bp_status {
    const std::shared_ptr<bool> is_done = event(handle).is_done;
    const Stream nobody;
    while (!*is_done) {
      if (!from(self).step_of_another(nobody)) return BP_TIMEOUT;
    }
    return BP_OK;
  };
  events.signal = [](void* self, bp_event* handle, bp_status) -> bp_status {
    if (!event(handle).is_host_signaled) return BP_INVALID_ARGUMENT;
    if (!from(self).faults.forgets_signals) *event(handle).is_done = true;
    return BP_OK;
  };
}

}  // namespace bp::conformance
