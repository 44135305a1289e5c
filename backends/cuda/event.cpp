// Events. Each record has its own CUDA event, or is the host's signal.
#include <memory>

#include "backends/cuda/stream.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::cuda {
namespace {

// Submits a record. `submitted` stands for waits on the host, and the CUDA event for waits on the
// device. The CUDA event is new, so streams that wait for the earlier record go on waiting for it.
void submit_record(Lane& lane, Record& record, bool is_timed, const Outcome& before) {
  const Driver& driver = lane.device().driver();
  Outcome outcome = before;
  try {
    const Current current(lane.device());
    auto native = std::make_shared<NativeEvent>(lane.device(), is_timed);
    check(driver, driver.cudaEventRecord(native->get(), lane.native()), "cudaEventRecord");
    record.native = std::move(native);
    record.marks = lane.marks();
  } catch (const CudaError& e) {
    lane.device().note(e);
    record.error = {.status = e.status(), .text = e.what()};
    if (outcome.status == BP_OK) outcome = record.error;
  }
  record.submitted->complete(std::move(outcome));
}

// Returns whether the recorded work has ended on the device. `record` must be submitted.
bool has_happened(Event& e, const Record& record) {
  if (record.native == nullptr) return true;
  try {
    return record.native->is_complete();
  } catch (const CudaError& error) {
    e.device->note(error);
    if (!e.device->is_lost()) throw;
    return true;
  }
}

// Blocks until the recorded work has ended, and returns true.
bool wait_for(Event& e, const Record& record) {
  try {
    record.native->synchronize();
  } catch (const CudaError& error) {
    e.device->note(error);
    if (!e.device->is_lost()) throw;
  }
  return true;
}

struct Traits : StreamHandles<Instance, Device, Stream, Event> {
  static Lane& stream_of(bp_stream* handle, const char* call) { return lane_of(handle, call); }

  static std::shared_ptr<Record> make_moment(const Event&, const Lane&) {
    return std::make_shared<Record>();
  }
  static bp_status record(Lane& lane, const Event& e, const std::shared_ptr<Record>& record) {
    const bp_status status =
        lane.submit_always([&lane, record, is_timed = e.is_timed()](const Outcome& before) {
          submit_record(lane, *record, is_timed, before);
        });
    if (status == BP_OK && record->submitted->is_complete() && record->error.status != BP_OK) {
      refuse(record->error.status, "event.record: " + record->error.text);
    }
    return status;
  }
  static bool has_come(Event& e, const Record& record) {
    return record.submitted->is_complete() && has_happened(e, record);
  }
  static bool wait_until(Event& e, const Record& record, uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    if (!record.submitted->wait(timeout_ns)) return false;
    if (record.native == nullptr) return true;
    if (timeout_ns == UINT64_MAX) return wait_for(e, record);
    return poll(deadline.left_ns(), [&] { return has_happened(e, record); });
  }
  static Outcome outcome(const Event& e, const Record& record) {
    if (e.device->is_lost()) return {.status = BP_DEVICE_LOST, .text = e.device->loss()};
    for (const BadDataMark& mark : record.marks) {
      if (mark.has_fired()) return {.status = kBadDataStatus, .text = mark.slot->text()};
    }
    return record.submitted->outcome();
  }
  static Point& signal_of(const Record& record) { return *record.submitted; }
  static bool has_time(const Record& record) { return record.native != nullptr; }
  static bool has_one_clock(const Record& begin, const Record& end) {
    return begin.native->device().ordinal() == end.native->device().ordinal();
  }
  static int64_t elapsed_ns(const Event&, const Record& begin, const Record& end) {
    Device& device = begin.native->device();
    const Current current(device);
    float milliseconds = 0;
    check(
        device.driver(),
        device.driver().cudaEventElapsedTime(&milliseconds, begin.native->get(), end.native->get()),
        "cudaEventElapsedTime");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
};

}  // namespace

constinit const bp_event_ops kEvents = EventOps<Traits>::table();

}  // namespace bp::cuda
