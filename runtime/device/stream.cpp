#include <utility>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/error.hpp"

namespace bp {
namespace {

// The innermost guard of this thread, for any device. A list suffices, since there are few guards,
// and most often none.
constinit thread_local StreamGuard* innermost = nullptr;

}  // namespace

Stream::Stream(Device device, int32_t priority) : device_(device), handle_(nullptr) {
  const bp_stream_desc desc{.struct_size = sizeof(bp_stream_desc),
                            .struct_type = BP_STRUCT_STREAM_DESC,
                            .priority = priority};
  const bp_stream_ops& streams = *device.target().streams;
  check(streams.create(streams.self, device.target().device, &desc, &handle_), "stream.create");
}

Stream::~Stream() {
  const bp_stream_ops& streams = *device_.target().streams;
  if (handle_ != nullptr) streams.destroy(streams.self, handle_);
}

Stream::Stream(Stream&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

void Stream::wait_for(const Stream& other) {
  Event event(other.device());
  event.record(other);
  wait_for(event);
}

void Stream::wait_for(const Event& event) {
  const bp_stream_ops& streams = *device_.target().streams;
  check(streams.wait_event(streams.self, handle_, event.get()), "stream.wait_event");
}

bool Stream::is_idle() const {
  const bp_stream_ops& streams = *device_.target().streams;
  uint32_t is_done = 0;
  check(streams.query(streams.self, handle_, &is_done), "stream.query");
  return is_done != 0;
}

void Stream::synchronize() const {
  const bp_stream_ops& streams = *device_.target().streams;
  check(streams.synchronize(streams.self, handle_, UINT64_MAX), "stream.synchronize");
}

Event::Event(Device device, bp_event_flags flags) : device_(device), handle_(nullptr) {
  const bp_event_desc desc{
      .struct_size = sizeof(bp_event_desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
  const bp_event_ops& events = *device.target().events;
  check(events.create(events.self, device.target().device, &desc, &handle_), "event.create");
}

Event::~Event() {
  const bp_event_ops& events = *device_.target().events;
  if (handle_ != nullptr) events.destroy(events.self, handle_);
}

Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

void Event::record(const Stream& stream) {
  const bp_event_ops& events = *device_.target().events;
  check(events.record(events.self, handle_, stream.get()), "event.record");
}

void Event::record() {
  const bp_target& target = device_.target();
  bp_stream* stream = current_stream(target);
  if (stream == nullptr) stream = target.default_stream;
  check(target.events->record(target.events->self, handle_, stream), "event.record");
}

bool Event::is_done() const {
  const bp_event_ops& events = *device_.target().events;
  uint32_t is_done = 0;
  check(events.query(events.self, handle_, &is_done), "event.query");
  return is_done != 0;
}

void Event::synchronize() const {
  const bp_event_ops& events = *device_.target().events;
  check(events.synchronize(events.self, handle_, UINT64_MAX), "event.synchronize");
}

int64_t Event::elapsed_ns(const Event& end) const {
  const bp_event_ops& events = *device_.target().events;
  int64_t elapsed = 0;
  check(events.elapsed_ns(events.self, handle_, end.get(), &elapsed), "event.elapsed_ns");
  return elapsed;
}

StreamGuard::StreamGuard(const Stream& stream)
    : target_(&stream.device().target()), stream_(stream.get()), outer_(innermost) {
  // Without a handle the work would go to the default stream without notice.
  if (stream_ == nullptr)
    throw Error(BP_INVALID_ARGUMENT, "StreamGuard: the stream was moved away");
  innermost = this;
}

StreamGuard::~StreamGuard() { innermost = outer_; }

bp_stream* current_stream(const bp_target& target) {
  for (const StreamGuard* guard = innermost; guard != nullptr; guard = guard->outer_) {
    if (guard->target_ == &target) return guard->stream_;
  }
  return nullptr;
}

void synchronize_stream(Device device) {
  const bp_target& target = device.target();
  bp_stream* stream = current_stream(target);
  if (stream == nullptr) stream = target.default_stream;
  check(target.streams->synchronize(target.streams->self, stream, UINT64_MAX),
        "stream.synchronize");
}

}  // namespace bp
