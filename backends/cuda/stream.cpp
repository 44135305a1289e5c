#include "backends/cuda/stream.hpp"

#include <cstddef>
#include <memory>

#include "backplane/shell/first_size.hpp"

namespace bp::cuda {
namespace {

// ---- Streams ------------------------------------------------------------------------------------

bp_status stream_create(void* self, bp_device* handle, const bp_stream_desc* desc,
                        bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "stream.create");
    require(out_stream, "stream.create: out_stream");
    const auto request =
        read_desc(desc, kFirstSize<bp_stream_desc>, BP_STRUCT_STREAM_DESC, "stream.create");
    if (request.flags != BP_STREAM_DEFAULT) {
      refuse(BP_INVALID_ARGUMENT,
             "stream.create: flags is " + std::to_string(request.flags) + "; no bit is known");
    }
    *out_stream = reinterpret_cast<bp_stream*>(d.add(make_lane(d, request.priority)));
    return BP_OK;
  });
}

bp_status stream_default(void* self, bp_device* handle, bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "default_stream");
    require(out_stream, "default_stream: out_stream");
    *out_stream = reinterpret_cast<bp_stream*>(d.default_stream());
    return BP_OK;
  });
}

bp_status stream_destroy(void* self, bp_stream* handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) -> bp_status {
    Stream* const s = stream_or_null(handle);
    if (s == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "stream.destroy: stream is not one of this backend");
    }
    Device& d = s->lane->device();
    if (d.is_default_stream(s)) {
      refuse(BP_INVALID_ARGUMENT, "stream.destroy: the default stream is lent");
    }
    d.remove(s);
    return BP_OK;
  });
}

bp_status stream_query(void* self, bp_stream* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(handle, "stream.query");
    require(out_done, "stream.query: out_done");
    *out_done = lane.is_done() ? 1 : 0;
    return BP_OK;
  });
}

bp_status stream_status(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) { return lane_of(handle, "stream.status").surface(); });
}

bp_status stream_clear_failure(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) -> bp_status {
    lane_of(handle, "stream.clear_failure").clear_failure();
    return BP_OK;
  });
}

bp_status stream_synchronize(void* self, bp_stream* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) -> bp_status {
    const std::shared_ptr<Lane> lane = lane_of(handle, "stream.synchronize").shared_from_this();
    if (!lane->wait(timeout_ns)) return timed_out(i, "stream.synchronize", timeout_ns);
    return lane->surface();
  });
}

// CUDA holds nothing back, and what this backend holds waits for the host.
bp_status stream_flush(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) -> bp_status {
    lane_of(handle, "stream.flush");
    return BP_OK;
  });
}

bp_status stream_wait_event(void* self, bp_stream* handle, bp_event* event) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(handle, "stream.wait_event");
    const std::shared_ptr<Record> record = event_of(event, "stream.wait_event").latest();
    return record == nullptr ? lane.surface() : lane.wait_for(record);
  });
}

// ---- Callbacks ----------------------------------------------------------------------------------

struct Callback {
  std::shared_ptr<Lane> lane;
  bp_stream_callback_fn* function;
  void* user_data;
  Outcome before;  // How the submissions before it went.
};

// On a thread of CUDA, that calls nothing of CUDA: what the stream's kernels reported is in memory.
// Unlike cudaLaunchHostFunc(), this one is called on a lost device too, with the error.
void CUDART_CB run_callback(cudaStream_t, cudaError_t error, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  bp_status status = error == cudaSuccess ? bp_status{BP_OK} : status_of(error);
  if (status == BP_OK) status = callback->lane->outcome().status;
  if (status == BP_OK) status = callback->before.status;
  // Ends on a thread that may call CUDA: this may be the last one who has the stream.
  callback->lane->device().bury(std::move(callback->lane));
  callback->function(callback->user_data, status);
}

// Whether a callback could be submitted, between the call that wants to know and the thread on
// which it is.
struct Attempt {
  std::mutex mutex;  // Guards what follows.
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
    // The host counts on it: it runs here, once what came before has ended, and the stream fails.
    lane.device().quietly([&](const Driver&) { driver.cudaStreamSynchronize(lane.native()); });
    const bp_status before = callback->before.status;
    callback->function(callback->user_data, before == BP_OK ? e.status() : before);
    throw;
  }
}

bp_status stream_add_callback(void* self, bp_stream* handle, bp_stream_callback_fn* function,
                              void* user_data) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Lane& lane = lane_of(handle, "stream.add_callback");
    require(reinterpret_cast<const void*>(function), "stream.add_callback: callback");
    lane.device().sweep();
    auto attempt = std::make_shared<Attempt>();
    const bp_status status =
        lane.submit_always([&lane, attempt, function, user_data](const Outcome& before) {
          submit_callback(lane, *attempt,
                          std::unique_ptr<Callback>(
                              new Callback{lane.shared_from_this(), function, user_data, before}));
        });
    const std::lock_guard lock(attempt->mutex);
    attempt->has_returned = true;
    if (status != BP_OK || attempt->error.status == BP_OK) return status;
    return i.fail(attempt->error.status, "stream.add_callback: " + attempt->error.text);
  });
}

// ---- Native streams -----------------------------------------------------------------------------

bp_status stream_wrap_native(void* self, bp_device* handle, void* native, bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "stream.wrap_native");
    require(out_stream, "stream.wrap_native: out_stream");
    if (native == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "stream.wrap_native: native is NULL: the legacy default stream orders itself with all "
             "others; give a stream of its own");
    }
    *out_stream =
        reinterpret_cast<bp_stream*>(d.add(d.lane_with(static_cast<cudaStream_t>(native))));
    return BP_OK;
  });
}

bp_status stream_native_handle(void* self, bp_stream* handle, void** out_native) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(handle, "stream.native_handle");
    require(out_native, "stream.native_handle: out_native");
    *out_native = lane.native();
    return BP_OK;
  });
}

// A capture that the device's own library began.
bp_status stream_is_capturing(void* self, bp_stream* handle, uint32_t* out_is_capturing) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(handle, "stream.is_capturing");
    require(out_is_capturing, "stream.is_capturing: out_is_capturing");
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const Current current(lane.device());
    const Driver& driver = lane.device().driver();
    check(driver, driver.cudaStreamIsCapturing(lane.native(), &status), "cudaStreamIsCapturing");
    *out_is_capturing = status == cudaStreamCaptureStatusNone ? 0 : 1;
    return BP_OK;
  });
}

}  // namespace

// ---- Handles ------------------------------------------------------------------------------------

bp_status timed_out(const Instance& i, const char* call, uint64_t timeout_ns) {
  return i.fail(BP_TIMEOUT, std::string(call) + ": the work did not end within " +
                                std::to_string(timeout_ns) + " ns");
}

Lane& lane_of(bp_stream* handle, const char* call, const char* what) {
  Stream* const s = stream_or_null(handle);
  if (s == nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           std::string(call) + ": " + what + " is NULL or not one of this backend");
  }
  const Device& device = s->lane->device();
  if (device.is_lost()) refuse(BP_DEVICE_LOST, std::string(call) + ": " + device.loss());
  return *s->lane;
}

constinit const bp_stream_ops kStreams{
    .struct_size = sizeof(bp_stream_ops),
    .struct_type = BP_STRUCT_STREAM_OPS,
    .create = stream_create,
    .default_stream = stream_default,
    .destroy = stream_destroy,
    .query = stream_query,
    .status = stream_status,
    .clear_failure = stream_clear_failure,
    .synchronize = stream_synchronize,
    .flush = stream_flush,
    .wait_event = stream_wait_event,
    .add_callback = stream_add_callback,
    .wrap_native = stream_wrap_native,
    .native_handle = stream_native_handle,
    .is_capturing = stream_is_capturing,
};

}  // namespace bp::cuda
