#include "backends/cpu/full_instance.hpp"

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::cpu {
namespace {

SharedEvents& shared_events_of(void* self) { return *full_instance(self).shared_events; }

void check_device(void* self, bp_device* handle, const char* call) {
  if (device(instance(self), handle) != nullptr) return;
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": device is NULL or not one of this backend");
}

void check_event(void*, bp_event* handle, const char* call) {
  if (event(handle) != nullptr) return;
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": event is NULL or not one of this backend");
}

}  // namespace

NativeStreams::~NativeStreams() {
  for (Stream* const stream : wrapped_) delete stream;
}

void* NativeStreams::lend(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lent_, [](const auto& lent) { return lent.second.expired(); });
  lent_[queue.get()] = queue;
  return queue.get();
}

Stream* NativeStreams::wrap(void* native) {
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(native);
  std::shared_ptr<Queue> queue = found == lent_.end() ? nullptr : found->second.lock();
  if (queue == nullptr) return nullptr;
  auto stream = std::make_unique<Stream>();
  stream->queue = std::move(queue);
  wrapped_.insert(stream.get());
  return stream.release();
}

void NativeStreams::forget(Stream* stream) {
  const std::lock_guard lock(mutex_);
  wrapped_.erase(stream);
}

FullInstance::FullInstance(const bp_host* its_host) : Instance(its_host) {
  shared_events = std::make_unique<SharedEvents>(SharedEventBackend{.host = host,
                                                                    .streams = streams,
                                                                    .events = events,
                                                                    .kind = "backplane.cpu.event",
                                                                    .check_device = check_device,
                                                                    .check_event = check_event});
  SharedEventFront<shared_events_of>::put(streams, events);
  make_layouts(*this);
}

FullInstance::~FullInstance() = default;

}  // namespace bp::cpu
