// Graphs of the simulated device: captures of its own calls (backends/shell/capture.hpp).
#include "backends/sim/device.hpp"
#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/capture_front.hpp"

namespace bp::sim {
namespace {

Captures& captures_of(void* self) { return *instance(self).captures; }

// The object behind a handle, dead or alive; NULL if it is none of this backend.
template <typename Object, typename Handle>
Object* object_of(Handle* handle, uint32_t magic) {
  auto* const object = reinterpret_cast<Object*>(handle);
  return object != nullptr && object->magic == magic ? object : nullptr;
}

const void* queue_of(bp_stream* handle) {
  const Stream* const s = object_of<Stream>(handle, kStreamMagic);
  return s == nullptr ? nullptr : s->queue.get();
}

bp_device* device_of_stream(void*, bp_stream* handle) {
  return reinterpret_cast<bp_device*>(object_of<Stream>(handle, kStreamMagic)->device);
}

EventState state_of(bp_event* handle) {
  Event* const e = object_of<Event>(handle, kEventMagic);
  if (e == nullptr) return {};
  return {true, (e->flags & BP_EVENT_HOST_SIGNAL) != 0, e->latest() != nullptr};
}

bool size_of(bp_buffer* handle, uint64_t& out_size_bytes) {
  const Buffer* const b = object_of<Buffer>(handle, kBufferMagic);
  if (b == nullptr) return false;
  out_size_bytes = b->size_bytes;
  return true;
}

void fail(bp_stream* handle, bp_status status, const std::string& text) {
  Queue& queue = *object_of<Stream>(handle, kStreamMagic)->queue;
  static_cast<void>(queue.submit([=] { throw StatusError(status, text); }));
}

}  // namespace

void put_captures(Instance& i) {
  i.captures = std::make_unique<Captures>(CaptureBackend{.host = i.host,
                                                         .hooks = &i.hooks,
                                                         .memory = i.allocator,
                                                         .streams = i.streams,
                                                         .events = i.events,
                                                         .queue_of = queue_of,
                                                         .device_of = device_of_stream,
                                                         .state_of = state_of,
                                                         .size_of = size_of,
                                                         .fail = fail});
  CaptureFront<captures_of>::put(i.streams, i.events, i.allocator);
  i.graphs = i.captures->graphs();
}

bp_status launch_in_capture(const Instance& i, const bp_kernel& kernel, const bp_launch& launch,
                            const void* args,
                            const std::function<bp_status(bool only_checks)>& body) {
  if (!i.captures->is_capturing(launch.stream)) return body(false);
  return i.captures->launch(kernel, launch, args, [&] { return body(true); });
}

}  // namespace bp::sim
