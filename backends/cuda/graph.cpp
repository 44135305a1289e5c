// Graphs: captures of the calls of this backend (backends/common/capture.hpp).
#include "backends/common/capture_front.hpp"
#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

Captures& captures_of(void* self) { return *instance(self).captures; }

const void* queue_of(bp_stream* handle) {
  const Stream* const s = stream_or_null(handle);
  return s == nullptr ? nullptr : s->lane.get();
}

bp_device* device_of_stream(void*, bp_stream* handle) {
  return reinterpret_cast<bp_device*>(&stream_or_null(handle)->lane->device());
}

EventState state_of(bp_event* handle) {
  Event* const e = event_or_null(handle);
  if (e == nullptr) return {};
  return {true, (e->flags & BP_EVENT_HOST_SIGNAL) != 0, e->latest() != nullptr};
}

bool size_of(bp_buffer* handle, uint64_t& out_size_bytes) {
  const Buffer* const b = buffer_or_null(handle);
  if (b == nullptr) return false;
  out_size_bytes = b->size_bytes;
  return true;
}

void fail(bp_stream* handle, bp_status status, const std::string& text) {
  stream_or_null(handle)->lane->fail(status, text);
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

}  // namespace bp::cuda
