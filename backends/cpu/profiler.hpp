// Submits work other than launches. It records the work while the profiler is on, and lets it fail
// if a test ordered so.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/profiler.hpp"

namespace bp::cpu {

// Submits `task` to a stream. `written` is the memory in which a test may let a byte be wrong.
template <typename Task>
bp_status submit_work(const Instance& i, const Stream& stream, const WorkName& work,
                      std::span<std::byte> written, Task&& task) {
  if (!is_watched(i, stream)) [[likely]] {
    return stream.queue->submit(std::forward<Task>(task));
  }
  const TestFault fault = stream.lane->faults().take(*stream.queue);
  std::function<void()> watched = std::forward<Task>(task);
  if (i.hooks.is_recording()) watched = recorded(*i.profiler, stream, work, std::move(watched));
  return submit_with_fault(stream, fault, written, std::move(watched));
}

}  // namespace bp::cpu
