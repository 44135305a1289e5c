// Streams and events of the CPU backend: what the handles are.
#pragma once

#include <memory>
#include <mutex>

#include "backplane/shell/queue.hpp"
#include "backplane/stream.h"

namespace bp::cpu {

constexpr uint32_t kStreamMagic = 0x73747265;
constexpr uint32_t kEventMagic = 0x6576656e;

// The handle of a queue. The queue lives on after it until its work has ended.
struct Stream {
  uint32_t magic = kStreamMagic;
  std::shared_ptr<Queue> queue;
};

struct Event {
  // What it captured last; NULL if it was never recorded. One that the host signals has its point
  // from the beginning, and never another.
  std::shared_ptr<Point> latest() {
    const std::lock_guard lock(mutex);
    return point;
  }

  std::shared_ptr<Point> make_point() const {
    return std::make_shared<Point>((flags & BP_EVENT_TIMING) != 0);
  }

  uint32_t magic = kEventMagic;
  bp_event_flags flags = 0;
  std::mutex mutex;  // Guards `point`.
  std::shared_ptr<Point> point;
};

// Handles are never completed as global structs: two backends linked into one program would then
// both define bp_stream. Each type is converted here and nowhere else. NULL if a handle is not one
// of this backend.
inline Stream* stream(bp_stream* handle) {
  Stream* const s = reinterpret_cast<Stream*>(handle);
  return s != nullptr && s->magic == kStreamMagic ? s : nullptr;
}

inline Queue* queue(bp_stream* handle) {
  Stream* const s = stream(handle);
  return s == nullptr ? nullptr : s->queue.get();
}

inline Event* event(bp_event* handle) {
  Event* const e = reinterpret_cast<Event*>(handle);
  return e != nullptr && e->magic == kEventMagic ? e : nullptr;
}

}  // namespace bp::cpu
