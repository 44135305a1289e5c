#include "conformance/cases/engine/launch_watch.hpp"

#include <set>

namespace bp::conformance {
namespace {

// Returns the kernels whose launches end shortly before their memory is given back, so that each
// launch seems to leave some. A worker asks a kernel once, because many launches say so.
std::set<const bp_kernel*>& kernels_that_free_late() {
  static std::set<const bp_kernel*> kernels;
  return kernels;
}

// Returns whether the heap keeps at least `bytes` more than `before` for a second. On a busy
// machine, a thread of the backend that frees what launches used may wait that long for a
// processor.
bool keeps(int64_t bytes, int64_t before) {
  for (int i = 0; i < 100; ++i) {
    if (heap_bytes_in_use() - before < bytes) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

void How::begin(const Context& t, bp_stream* stream) const {
  if (watch == nullptr) return;
  const bp_stream_ops& streams = *t.target().streams;
  if (from == From::kNewThread) {
    static_cast<void>(streams.synchronize(streams.self, stream, kTimeoutNs));
  }
  watch->begin();
}

void How::end() const {
  if (watch != nullptr) watch->end(from == From::kNewThread);
}

void look_for_leak(LeakWatch& watch, const bp_kernel& kernel,
                   const std::function<bool(From)>& launch) {
  constexpr int kMoreLaunches = 20, kLaunchesPerRound = 40;
  if (kernels_that_free_late().count(&kernel) != 0) return;
  for (int i = 0; i < kMoreLaunches && watch.is_suspect(); ++i) {
    if (!launch(From::kNewThread)) return;
  }
  if (!watch.is_suspect()) return;
  watch.tell_device();
  if (!watch.leaves_host_memory()) return;
  // Memory that is given back late grows by one launch, and a leak by all of them.
  const int64_t least = watch.least_host_bytes() * kLaunchesPerRound / 2;
  bool grows = true;
  for (int round = 0; round < 2 && grows; ++round) {
    const int64_t before = heap_bytes_in_use();
    for (int i = 0; i < kLaunchesPerRound; ++i) {
      if (!launch(From::kNewThread)) return;
    }
    grows = watch.leaves_host_memory() && keeps(least, before);
  }
  if (grows) return watch.tell_host();
  kernels_that_free_late().insert(&kernel);
}

bool can_hold_streams(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  bp_event* event = nullptr;
  const bp_status status = events.create(events.self, t.target().device, &desc, &event);
  bp_error_clear();
  if (status == BP_OK) static_cast<void>(events.destroy(events.self, event));
  return status == BP_OK;
}

}  // namespace bp::conformance
