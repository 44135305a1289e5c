// Backends that are right but late. Work starts only when a call requires it by the contract, and
// streams that nothing relates start in any order.
//
// A host-signalled event holds a stream: the stream waits for the event before its first piece of
// work, and the next call that promises progress signals the event.
#include <chrono>
#include <condition_variable>
#include <map>
#include <thread>
#include <vector>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// Signals events on its own thread, the latest first, with a pause before each.
class Opener {
 public:
  explicit Opener(Runtime& runtime) : runtime_(runtime), thread_([this] { run(); }) {}
  ~Opener() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }

  void add(bp_event* gate) {
    const std::lock_guard lock(mutex_);
    gates_.push_back(gate);
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (uint64_t count = 0;; ++count) {
      changed_.wait(lock, [&] { return is_ending_ || !gates_.empty(); });
      if (gates_.empty()) return;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(count * 37 % 150));
      lock.lock();
      bp_event* const gate = gates_.back();
      gates_.pop_back();
      lock.unlock();
      const bp_event_ops& events = runtime_.good.events;
      static_cast<void>(events.signal(events.self, gate, BP_OK));
      static_cast<void>(events.destroy(events.self, gate));
      lock.lock();
    }
  }

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bp_event*> gates_;  // mutex_ guards this member and the ones below.
  bool is_ending_ = false;
  std::thread thread_;
};

struct Held {
  std::map<bp_stream*, bp_event*> gates;     // The gates of streams that are held.
  std::map<bp_stream*, bp_device*> devices;  // The devices of streams that were lent or made.
  std::map<void*, bp_stream*> natives;       // The streams whose native streams were lent.
  std::map<bp_stream*, bp_stream*> wrapped;  // Streams that are another handle of the same queue,
                                             // with the stream that stands for it.
  std::unique_ptr<Opener> opener;            // NULL if the caller opens the gates.
};

Held& held(Runtime& r) { return r.state_as<Held>(); }

// Returns the handle of a queue that holds it. The caller holds the mutex.
bp_stream* holder(Runtime& r, bp_stream* stream) {
  const auto found = held(r).wrapped.find(stream);
  return found == held(r).wrapped.end() ? stream : found->second;
}

// Holds the stream, unless it is held already.
void hold(Runtime& r, bp_stream* stream) {
  const std::lock_guard lock(r.mutex);
  stream = holder(r, stream);
  const auto device = held(r).devices.find(stream);
  if (device == held(r).devices.end() || held(r).gates.contains(stream)) return;
  bp_event_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_EVENT_DESC;
  desc.flags = BP_EVENT_HOST_SIGNAL;
  bp_event* gate = nullptr;
  const bp_event_ops& events = r.good.events;
  const bp_stream_ops& streams = r.good.streams;
  if (streams.status(streams.self, stream) != BP_OK) return;
  if (events.create(events.self, device->second, &desc, &gate) != BP_OK) return;
  if (streams.wait_event(streams.self, stream, gate) == BP_OK) {
    held(r).gates[stream] = gate;
  } else {
    static_cast<void>(events.destroy(events.self, gate));
  }
}

void open(Runtime& r, bp_event* gate) {
  if (held(r).opener != nullptr) return held(r).opener->add(gate);
  const bp_event_ops& events = r.good.events;
  static_cast<void>(events.signal(events.self, gate, BP_OK));
  static_cast<void>(events.destroy(events.self, gate));
}

void let_go(Runtime& r, bp_stream* stream) {
  const std::lock_guard lock(r.mutex);
  const auto found = held(r).gates.find(holder(r, stream));
  if (found == held(r).gates.end()) return;
  open(r, found->second);
  held(r).gates.erase(found);
}

void let_all_go(Runtime& r) {
  const std::lock_guard lock(r.mutex);
  for (const auto& [stream, gate] : held(r).gates) open(r, gate);
  held(r).gates.clear();
}

bp_status create_stream(void* self, bp_device* device, const bp_stream_desc* desc,
                        bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_status status = r.good.streams.create(r.good.streams.self, device, desc, out_stream);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  held(r).devices[*out_stream] = device;
  return BP_OK;
}

bp_status default_stream(void* self, bp_device* device, bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_status status = r.good.streams.default_stream(r.good.streams.self, device, out_stream);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  held(r).devices[*out_stream] = device;
  return BP_OK;
}

bp_status destroy_stream(void* self, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  let_go(r, stream);
  const bp_status status = r.good.streams.destroy(r.good.streams.self, stream);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  held(r).devices.erase(stream);
  held(r).wrapped.erase(stream);
  std::erase_if(held(r).natives, [&](const auto& lent) { return lent.second == stream; });
  return BP_OK;
}

bp_status native_handle(void* self, bp_stream* stream, void** out_native) {
  Runtime& r = runtime_of(self);
  let_go(r, stream);
  const bp_status status = r.good.streams.native_handle(r.good.streams.self, stream, out_native);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  held(r).natives[*out_native] = holder(r, stream);
  return BP_OK;
}

bp_status wrap_native(void* self, bp_device* device, void* native, bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_status status =
      r.good.streams.wrap_native(r.good.streams.self, device, native, out_stream);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  const auto lent = held(r).natives.find(native);
  if (lent != held(r).natives.end()) held(r).wrapped[*out_stream] = lent->second;
  return BP_OK;
}

// The entries for calls that promise progress, and for calls that wait.
template <auto slot, typename Type = decltype(slot)>
struct Progress;
template <auto slot, typename... Rest>
struct Progress<slot, bp_status (*bp_stream_ops::*)(void*, bp_stream*, Rest...)> {
  static bp_status call(void* self, bp_stream* stream, Rest... rest) {
    Runtime& r = runtime_of(self);
    let_go(r, stream);
    return (r.good.streams.*slot)(r.good.streams.self, stream, rest...);
  }
};

bp_status record(void* self, bp_event* event, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  const bp_status status = r.good.events.record(r.good.events.self, event, stream);
  let_go(r, stream);
  return status;
}

bp_status add_callback(void* self, bp_stream* stream, bp_stream_callback_fn* callback,
                       void* user_data) {
  Runtime& r = runtime_of(self);
  const bp_status status =
      r.good.streams.add_callback(r.good.streams.self, stream, callback, user_data);
  let_go(r, stream);
  return status;
}

bp_status synchronize_device(void* self, bp_device* device, uint64_t timeout_ns) {
  Runtime& r = runtime_of(self);
  let_all_go(r);
  return r.good.devices.synchronize(r.good.devices.self, device, timeout_ns);
}

bp_status copy(void* self, bp_stream* stream, const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  Runtime& r = runtime_of(self);
  hold(r, stream);
  return r.good.allocator.copy(r.good.allocator.self, stream, dst, src);
}

bp_status fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
               uint64_t pattern_size_bytes) {
  Runtime& r = runtime_of(self);
  hold(r, stream);
  return r.good.allocator.fill(r.good.allocator.self, stream, dst, pattern, pattern_size_bytes);
}

bp_status copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* src,
                         bp_borrow borrow) {
  Runtime& r = runtime_of(self);
  hold(r, stream);
  return r.good.allocator.copy_from_host(r.good.allocator.self, stream, dst, src, borrow);
}

bp_status copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                       bp_borrow borrow, uint64_t timeout_ns) {
  Runtime& r = runtime_of(self);
  if (borrow == BP_BORROW_UNTIL_COMPLETE) {
    hold(r, stream);
  } else {
    let_go(r, stream);
  }
  return r.good.allocator.copy_to_host(r.good.allocator.self, stream, dst, src, borrow, timeout_ns);
}

bp_stream* hold_launch(Runtime& r, const bp_launch& launch) {
  hold(r, launch.stream);
  return launch.stream;
}

// Makes streams start late, without adding work to them. A failed stream, or one that cannot be
// held, stays as it is.
void bend_lazily(Runtime& r) {
  static_cast<void>(held(r));
  bp_stream_ops& streams = r.bent.streams;
  streams.create = create_stream;
  streams.default_stream = default_stream;
  streams.destroy = destroy_stream;
  streams.query = Progress<&bp_stream_ops::query>::call;
  streams.synchronize = Progress<&bp_stream_ops::synchronize>::call;
  streams.flush = Progress<&bp_stream_ops::flush>::call;
  streams.add_callback = add_callback;
  if (streams.native_handle != nullptr) streams.native_handle = native_handle;
  if (streams.wrap_native != nullptr) streams.wrap_native = wrap_native;
  r.bent.events.record = record;
  r.bent.devices.synchronize = synchronize_device;
  bp_allocator_ops& memory = r.bent.allocator;
  memory.copy = copy;
  memory.fill = fill;
  memory.copy_from_host = copy_from_host;
  memory.copy_to_host = copy_to_host;
}

// Does the same as bend_lazily(), but another thread releases the streams, the last one first.
void bend_order(Runtime& r) {
  bend_lazily(r);
  if (held(r).opener == nullptr) held(r).opener = std::make_unique<Opener>(r);
}

void end(Runtime& r) {
  let_all_go(r);
  held(r).opener.reset();
}

constexpr RuntimeMutant kTable[] = {
    {.id = "benign_lazy", .bend = bend_lazily, .launch_stream = hold_launch, .end = end},
    {.id = "benign_reorder", .bend = bend_order, .launch_stream = hold_launch, .end = end},
};

}  // namespace

std::span<const RuntimeMutant> lazy_mutants() { return kTable; }

}  // namespace bp::mutants
