// Which streams are in a capture: the one that began it, and those that joined it by an event.
#pragma once

#include <map>
#include <vector>

#include "backplane/host.h"

namespace bp::layers {

// Not thread-safe.
class Captures {
 public:
  // False if the stream is in one already.
  bool begin(bp_stream* stream) { return origins_.emplace(stream, stream).second; }

  // Who began the capture that the stream is in; NULL if it is in none.
  bp_stream* origin(bp_stream* stream) const {
    const auto found = origins_.find(stream);
    return found == origins_.end() ? nullptr : found->second;
  }

  // The streams that were in the capture which `origin` began; none if it began none.
  std::vector<bp_stream*> end(bp_stream* origin) {
    std::vector<bp_stream*> streams;
    for (const auto& [stream, began] : origins_) {
      if (began == origin) streams.push_back(stream);
    }
    for (bp_stream* stream : streams) origins_.erase(stream);
    std::erase_if(events_, [&](const auto& entry) { return entry.second == origin; });
    return streams;
  }

  // An event recorded in a capture takes it to whoever waits; one recorded outside does not.
  void record(bp_event* event, bp_stream* stream) {
    const auto found = origins_.find(stream);
    if (found == origins_.end()) {
      events_.erase(event);
    } else {
      events_[event] = found->second;
    }
  }

  // Who began the capture in which `event` was recorded last; NULL if it was in none.
  bp_stream* origin(bp_event* event) const {
    const auto found = events_.find(event);
    return found == events_.end() ? nullptr : found->second;
  }

  // `stream` waits for an event of the capture that `origin` began. False if it is in one already.
  bool join(bp_stream* stream, bp_stream* origin) {
    return origins_.emplace(stream, origin).second;
  }

  void forget_event(bp_event* event) { events_.erase(event); }

  // `stream` has ended, and began no capture: the next one of its address is in none.
  void forget_stream(bp_stream* stream) { origins_.erase(stream); }

 private:
  std::map<bp_stream*, bp_stream*> origins_;  // By each stream in a capture, who began it.
  std::map<bp_event*, bp_stream*> events_;    // By each event recorded in one, who began it.
};

}  // namespace bp::layers
