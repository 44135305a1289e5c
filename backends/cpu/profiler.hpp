// Submits work other than launches, and records it while the profiler is on.
#pragma once

#include <utility>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/profiler.hpp"

namespace bp::cpu {

// What a record says of the work. `bytes` counts the bytes that the work reads and writes.
struct WorkName {
  bp_activity_kind kind;
  const char* name;
  uint64_t bytes;
};

// Submits `task` to a stream.
template <typename Task>
bp_status submit_work(const Instance& i, const Stream& stream, const WorkName& work, Task&& task) {
  if (!i.hooks.is_recording()) [[likely]] {
    return stream.queue->submit(std::forward<Task>(task));
  }
  return stream.queue->submit(
      i.profiler->recorded({.kind = work.kind,
                            .name = work.name,
                            .device = reinterpret_cast<bp_device*>(i.device.get()),
                            .stream = reinterpret_cast<bp_stream*>(const_cast<Stream*>(&stream)),
                            .bytes = work.bytes},
                           std::forward<Task>(task)));
}

}  // namespace bp::cpu
