#include <algorithm>

#include "runtime/distributed/group_state.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

// Work that carries a failure has ended.
bool has_ended(const WorkState& work) {
  const bp_event_ops& events = *work.group->device.target().events;
  uint32_t is_done = 0;
  return events.query(events.self, work.done.get(), &is_done) != BP_OK || is_done != 0;
}

// Returns the failure that the ended work carries, with its text in the error slot.
bp_status failure_of(const WorkState& work) {
  const bp_event_ops& events = *work.group->device.target().events;
  return events.synchronize(events.self, work.done.get(), 0);
}

std::string failure_text(const WorkState& work, const std::string& text) {
  return work.what + " of " + work.group->describe() + ": " + text;
}

void tell_observer(const WorkState& work, bool has_ended) {
  const CallObserver* observer = work.group->observer.get();
  if (observer == nullptr || !observer->on_wait) return;
  observer->on_wait(work.group->name, work.number, has_ended);
}

}  // namespace

uint64_t timeout_ns(Duration timeout) {
  if (timeout == Duration::max()) return UINT64_MAX;
  return static_cast<uint64_t>(std::max<Duration::rep>(timeout.count(), 0));
}

bool Work::is_done() const { return state_ == nullptr || has_ended(*state_); }

void Work::wait(Duration timeout) const {
  if (state_ == nullptr) return;
  tell_observer(*state_, false);
  const bp_event_ops& events = *state_->group->device.target().events;
  bp_status status = events.synchronize(events.self, state_->done.get(), timeout_ns(timeout));
  if (status == BP_TIMEOUT) {
    if (!has_ended(*state_)) {
      throw Error(status, failure_text(*state_, "the work has not ended within " +
                                                    duration_text(timeout) + "; it goes on"));
    }
    status = failure_of(*state_);  // The work itself timed out, or it ended just now.
  }
  if (status != BP_OK) throw Error(status, failure_text(*state_, bp_error_text()));
  tell_observer(*state_, true);
}

void Work::join() const {
  if (state_ == nullptr) return;
  tell_observer(*state_, false);
  const bp_target& target = state_->group->device.target();
  bp_stream* stream = current_stream(target);
  if (stream == nullptr) stream = target.default_stream;
  check(target.streams->wait_event(target.streams->self, stream, state_->done.get()),
        "stream.wait_event");
  tell_observer(*state_, true);
}

bp_status Work::status() const {
  return state_ == nullptr || !is_done() ? bp_status{BP_OK} : failure_of(*state_);
}

std::string Work::error_text() const {
  if (status() == BP_OK) return "";
  return failure_text(*state_, bp_error_text());
}

}  // namespace bp::distributed
