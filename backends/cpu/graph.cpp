// Graphs of the CPU backend: captures of its own calls (backends/shell/capture.hpp).
#include "backends/cpu/backend.hpp"
#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/capture_front.hpp"

namespace bp::cpu {
namespace {

Captures& captures_of(void* self) { return *instance(self).captures; }

EventState state_of(bp_event* handle) {
  Event* const e = event(handle);
  if (e == nullptr) return {};
  return {true, (e->flags & BP_EVENT_HOST_SIGNAL) != 0, e->latest() != nullptr};
}

bool size_of(bp_buffer* handle, uint64_t& out_size_bytes) {
  const Buffer* const b = buffer(handle);
  if (b == nullptr) return false;
  out_size_bytes = b->size_bytes;
  return true;
}

}  // namespace

void put_captures(Instance& i) {
  i.captures = std::make_unique<Captures>(CaptureBackend{
      .host = i.host,
      .hooks = &i.hooks,
      .memory = i.allocator,
      .streams = i.streams,
      .events = i.events,
      .queue_of = [](bp_stream* handle) -> const void* { return queue(handle); },
      .device_of =
          [](void* self, bp_stream*) {
            return reinterpret_cast<bp_device*>(instance(self).device.get());
          },
      .state_of = state_of,
      .size_of = size_of,
      .fail =
          [](bp_stream* handle, bp_status status, const std::string& text) {
            static_cast<void>(queue(handle)->submit([=] { throw StatusError(status, text); }));
          }});
  CaptureFront<captures_of>::put(i.streams, i.events, i.allocator);
  i.graphs = i.captures->graphs();
}

bp_status launch_in_capture(const Instance& i, const bp_kernel& kernel, const bp_launch& launch,
                            const void* args,
                            const std::function<bp_status(bool only_checks)>& body) {
  if (!i.captures->is_capturing(launch.stream)) return body(false);
  return i.captures->launch(kernel, launch, args, [&] { return body(true); });
}

}  // namespace bp::cpu
