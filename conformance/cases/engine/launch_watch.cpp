#include "conformance/cases/engine/launch_watch.hpp"

#include <bit>
#include <map>

namespace bp::conformance {
namespace {

// Returns the kernels whose launches end shortly before their memory is given back, so that each
// launch seems to leave some, with the number of calls that have seemed so.
std::map<const bp_kernel*, uint32_t>& kernels_that_free_late() {
  static std::map<const bp_kernel*, uint32_t> kernels;
  return kernels;
}

// Returns whether to look again at a kernel that has seemed to leave memory. Most calls of a kernel
// that frees late seem so, and looking takes many launches.
bool is_worth_a_look(const bp_kernel& kernel) {
  const auto known = kernels_that_free_late().find(&kernel);
  return known == kernels_that_free_late().end() || std::has_single_bit(++known->second);
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
  constexpr int kMoreLaunches = 20, kLaunchesPerRound = 40, kRounds = 3;
  const bool looks_at_host = watch.leaves_host_memory() && is_worth_a_look(kernel);
  if (!looks_at_host && !watch.leaves_device_memory()) return;
  for (int i = 0; i < kMoreLaunches && watch.is_suspect(); ++i) {
    if (!launch(From::kNewThread)) return;
  }
  // Memory that is given back late grows by one launch, and a leak by all of them. Other processes
  // may take memory of the device, but hardly so much in each round.
  bool host_grows = looks_at_host, device_grows = true;
  const auto is_open = [&] {
    host_grows = host_grows && watch.leaves_host_memory();
    device_grows = device_grows && watch.leaves_device_memory();
    return host_grows || device_grows;
  };
  for (int round = 0; round < kRounds && is_open(); ++round) {
    const int64_t host = heap_bytes_in_use(), least = watch.least_host_bytes();
    const uint64_t device = free_device_bytes(watch.context());
    for (int i = 0; i < kLaunchesPerRound; ++i) {
      if (!launch(From::kNewThread)) return;
    }
    const uint64_t taken = device - std::min(device, free_device_bytes(watch.context()));
    device_grows = device_grows && taken >= watch.least_device_bytes() * kLaunchesPerRound / 2;
    host_grows = host_grows && keeps(least * kLaunchesPerRound / 2, host);
  }
  static_cast<void>(is_open());
  if (device_grows) watch.tell_device();
  if (host_grows) watch.tell_host();
  if (looks_at_host && !host_grows) kernels_that_free_late().try_emplace(&kernel, 1);
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
