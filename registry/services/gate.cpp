#include "registry/services/gate.hpp"

#include <utility>

namespace bp::services {
namespace {

void on_end(void* user_data, bp_status status) {
  const std::unique_ptr<std::shared_ptr<Gate>> gate(static_cast<std::shared_ptr<Gate>*>(user_data));
  (*gate)->signal(status);
}

}  // namespace

std::shared_ptr<Gate> Gate::make(const bp_target& target, Cache& cache) {
  const bp_event_ops& events = *target.events;
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  auto made = std::make_shared<StagedEvent>();
  if (events.create(events.self, target.device, &desc, &made->event) != BP_OK) return nullptr;
  try {
    cache.keep_event(made);
  } catch (...) {
    static_cast<void>(events.destroy(events.self, made->event));
    throw;
  }
  return std::make_shared<Gate>(events, std::move(made));
}

bp_status Gate::hold(const bp_stream_ops& streams, bp_stream* stream) const {
  return streams.wait_event(streams.self, stream, event_->event);
}

void Gate::signal(bp_status status) const {
  static_cast<void>(events_.signal(events_.self, event_->event, status));
  event_->is_signalled = true;
}

void Gate::signal_behind(std::shared_ptr<Gate> gate, const bp_target& other, bp_stream* stream) {
  auto owner = std::make_unique<std::shared_ptr<Gate>>(std::move(gate));
  call_when_done(other, stream, {on_end, owner.release()});
}

}  // namespace bp::services
