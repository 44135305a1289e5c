#include "backends/cuda/stream.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::cuda {
namespace {

// ---- Callbacks ----------------------------------------------------------------------------------

// Work of the host, which gets the outcome of the work in front of it, and fails by throwing.
using HostWork = std::function<void(const Outcome&)>;

struct Callback {
  std::shared_ptr<Lane> lane;
  HostWork work;
  Outcome before;  // The outcome of earlier submissions.
};

Outcome outcome_for(const Callback& callback, cudaError_t error) {
  if (error != cudaSuccess) {
    return {.status = status_of(error),
            .text = "work of the stream ended with CUDA error " + std::to_string(error)};
  }
  Outcome outcome = callback.lane->outcome();
  return outcome.status == BP_OK ? callback.before : outcome;
}

// Runs on a thread of CUDA, on which no CUDA function may be called. The reports of the stream's
// kernels are in host memory. Unlike a function of cudaLaunchHostFunc(), it is called on a lost
// device too, with the error.
void CUDART_CB run_callback(cudaStream_t, cudaError_t error, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  Lane& lane = *callback->lane;
  try {
    callback->work(outcome_for(*callback, error));
  } catch (const StatusError& e) {
    lane.fail_now(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    lane.fail_now(BP_OUT_OF_MEMORY, "out of host memory");
  }
  // This may be the last reference to the stream, so a thread that may call CUDA releases it.
  lane.device().bury(std::move(callback->lane));
}

// Tells the call that submits work of the host whether the thread that submits it succeeded.
struct Attempt {
  std::mutex mutex;  // It guards the members below.
  bool has_returned = false;
  Outcome error;
};

void submit_callback(Lane& lane, Attempt& attempt, std::unique_ptr<Callback> callback) {
  const Driver& driver = lane.device().driver();
  try {
    const Current current(lane.device());
    check(driver, driver.cudaStreamAddCallback(lane.native(), run_callback, callback.get(), 0),
          "cudaStreamAddCallback");
    static_cast<void>(callback.release());
  } catch (const CudaError& e) {
    lane.device().note(e);
    {
      const std::lock_guard lock(attempt.mutex);
      attempt.error = {.status = e.status(), .text = e.what()};
      if (!attempt.has_returned) return;
    }
    // Others rely on the work. So it runs on this thread, once the earlier work has ended, and the
    // stream fails.
    lane.device().quietly([&](const Driver&) { driver.cudaStreamSynchronize(lane.native()); });
    const Outcome& before = callback->before;
    callback->work(before.status == BP_OK ? Outcome{.status = e.status(), .text = e.what()}
                                          : before);
    throw;
  }
}

// Submits work of the host for the entry `call`. It runs when what was submitted to the stream
// before has ended, also after a failure.
bp_status submit_host_work(const Stream& s, HostWork work, const char* call) {
  Lane& lane = *s.lane;
  lane.device().sweep();
  auto attempt = std::make_shared<Attempt>();
  const bp_status status = lane.submit_always([&lane, attempt,
                                               work = std::move(work)](const Outcome& before) {
    submit_callback(lane, *attempt,
                    std::make_unique<Callback>(Callback{lane.shared_from_this(), work, before}));
  });
  const std::lock_guard lock(attempt->mutex);
  attempt->has_returned = true;
  if (status != BP_OK || attempt->error.status == BP_OK) return status;
  refuse(attempt->error.status, std::string(call) + ": " + attempt->error.text);
}

// ---- Records ------------------------------------------------------------------------------------

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
bool wait_until_ended(Event& e, const Record& record) {
  try {
    record.native->synchronize();
  } catch (const CudaError& error) {
    e.device->note(error);
    if (!e.device->is_lost()) throw;
  }
  return true;
}

// ---- What the shell asks of streams and events --------------------------------------------------

struct Traits : StreamHandles<Instance, Device, Stream, Event> {
  static Stream* create_stream(Device& d, const bp_stream_desc& desc) {
    return d.create_stream(desc.priority);
  }
  static Stream* default_stream(Device& d) { return d.default_stream(); }
  static bool is_default_stream(const Stream& s) { return s.device->is_default_stream(&s); }
  static void destroy_stream(Stream& s) { s.device->destroy_stream(&s); }

  static bool is_idle(const Stream& s) { return s.lane->is_done(); }
  static bool wait(const Stream& s, uint64_t timeout_ns) { return s.lane->wait(timeout_ns); }
  // CUDA holds no work back, and work that this backend holds waits for the host.
  static void flush(const Stream&) {}
  static bp_status surface(const Stream& s) { return s.lane->surface(); }
  static bp_status admit(const Stream& s) { return s.lane->admit(); }
  static void clear_failure(const Stream& s) { s.lane->clear_failure(); }
  static bp_status wait_for(const Stream& s, const std::shared_ptr<Record>& record) {
    return s.lane->wait_for(record);
  }

  // The value of a semaphore lies on the host, and the stream is held until it is reached: nothing
  // could end a wait of CUDA itself with a failure, and work behind it would run.
  using Semaphore = cuda::Semaphore;
  static const char* file_kind(const Instance&) { return "backplane.cuda.semaphore"; }
  static bp_status wait_for(const Stream& s, const std::shared_ptr<Point>& point) {
    return s.lane->wait_for(point);
  }
  static bp_status run_behind(const Stream& s, HostWork work) {
    return submit_host_work(s, std::move(work), "semaphore.submit_signal");
  }

  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* function, void* user_data) {
    return submit_host_work(
        s, [function, user_data](const Outcome& before) { function(user_data, before.status); },
        "stream.add_callback");
  }

  static Stream* wrap_native(Device& d, void* native) {
    if (native == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "stream.wrap_native: native is NULL: the legacy default stream orders itself with all "
             "others; give a stream of its own");
    }
    return d.wrap_stream(static_cast<cudaStream_t>(native));
  }
  static void* native_handle(const Stream& s) { return s.lane->native(); }

  // Returns whether CUDA itself captures the stream.
  static bool is_capturing(const Stream& s) {
    Lane& lane = *s.lane;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const Current current(lane.device());
    const Driver& driver = lane.device().driver();
    check(driver, driver.cudaStreamIsCapturing(lane.native(), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  static std::shared_ptr<Record> make_moment(const Event&, const Stream&) {
    return std::make_shared<Record>();
  }
  static bp_status record(const Stream& s, const Event& e, const std::shared_ptr<Record>& record) {
    Lane& lane = *s.lane;
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
    if (timeout_ns == UINT64_MAX) return wait_until_ended(e, record);
    return poll(deadline.left_ns(), [&] { return has_happened(e, record); });
  }
  static Outcome outcome(const Event& e, const Record& record) {
    if (e.device->is_lost()) return {.status = BP_DEVICE_LOST, .text = e.device->loss()};
    for (const BadDataMark& mark : record.marks) {
      if (mark.has_fired()) return {.status = BP_DATA_FAILURE, .text = mark.slot->text()};
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

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();
constinit const bp_semaphore_ops kSemaphores = SemaphoreOps<Traits>::table();

}  // namespace bp::cuda
