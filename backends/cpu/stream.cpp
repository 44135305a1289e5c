#include "backends/cpu/stream.hpp"

#include "backends/cpu/device.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::cpu {
namespace {

struct Traits : QueueStreams<Instance, Device, Stream, Event> {
  using Semaphore = cpu::Semaphore;

  static const char* file_kind(const Instance&) { return "backplane.cpu.semaphore"; }

  // The native handle of a stream is the address of its queue.
  static Stream* wrap_native(Device& d, void* native) { return d.wrap_stream(native); }
  static void* native_handle(const Stream& s) { return s.queue.get(); }
};

}  // namespace

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();
constinit const bp_semaphore_ops kSemaphores = SemaphoreOps<Traits>::table();

}  // namespace bp::cpu
