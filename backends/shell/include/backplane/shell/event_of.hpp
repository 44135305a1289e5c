// What an event of a backend derives from. stream_ops.hpp says what its moments are.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "backplane/stream.h"

namespace bp {

// The members of an event that has moments of any type.
template <typename ItsMoment>
struct EventOf {
  using Moment = ItsMoment;

  // Makes an event. An event that the host signals has its moment from the beginning, which is made
  // from `args`, and never gets another moment.
  template <typename... Args>
  explicit EventOf(bp_event_flags its_flags, Args&&... args) : flags(its_flags) {
    if (is_signalled()) moment = std::make_shared<Moment>(std::forward<Args>(args)...);
  }

  bool is_timed() const { return (flags & BP_EVENT_TIMING) != 0; }
  bool is_signalled() const { return (flags & BP_EVENT_HOST_SIGNAL) != 0; }

  // Returns the latest moment, or NULL if the event was never recorded.
  std::shared_ptr<Moment> latest() {
    const std::lock_guard lock(mutex);
    return moment;
  }

  const bp_event_flags flags;
  std::mutex mutex;  // It guards `moment`.
  std::shared_ptr<Moment> moment;
};

}  // namespace bp
