// Knows which streams are in a capture: the stream that began it, and those that joined it by an
// event.
#pragma once

#include <map>
#include <vector>

#include "backplane/host.h"

namespace bp::layers {

// Not thread-safe.
class Captures {
 public:
  // Returns false if the stream is in a capture already.
  bool begin(bp_stream* stream) { return origins_.emplace(stream, stream).second; }

  // Returns the stream that began the capture of `stream`, or NULL if `stream` is in none.
  bp_stream* origin(bp_stream* stream) const {
    const auto found = origins_.find(stream);
    return found == origins_.end() ? nullptr : found->second;
  }

  // Returns the streams that were in the capture which `origin` began, or none if it began none.
  std::vector<bp_stream*> end(bp_stream* origin) {
    std::vector<bp_stream*> streams;
    for (const auto& [stream, began] : origins_) {
      if (began == origin) streams.push_back(stream);
    }
    for (bp_stream* stream : streams) origins_.erase(stream);
    std::erase_if(events_, [&](const auto& entry) { return entry.second == origin; });
    return streams;
  }

  // An event recorded in a capture takes each stream that waits for it into the capture. An event
  // recorded outside does not.
  void record(bp_event* event, bp_stream* stream) {
    const auto found = origins_.find(stream);
    if (found == origins_.end()) {
      events_.erase(event);
    } else {
      events_[event] = found->second;
    }
  }

  // Returns the stream that began the capture in which `event` was recorded last, or NULL if it was
  // in none.
  bp_stream* origin(bp_event* event) const {
    const auto found = events_.find(event);
    return found == events_.end() ? nullptr : found->second;
  }

  // Notes that `stream` waits for an event of the capture that `origin` began. Returns false if
  // `stream` is in a capture already.
  bool join(bp_stream* stream, bp_stream* origin) {
    return origins_.emplace(stream, origin).second;
  }

  void forget_event(bp_event* event) { events_.erase(event); }

  // Forgets `stream`, which has ended and began no capture. The next stream at its address is in
  // none.
  void forget_stream(bp_stream* stream) { origins_.erase(stream); }

 private:
  // For each stream in a capture, the stream that began it.
  std::map<bp_stream*, bp_stream*> origins_;
  // For each event recorded in a capture, the stream that began it.
  std::map<bp_event*, bp_stream*> events_;
};

}  // namespace bp::layers
