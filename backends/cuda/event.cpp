// Events: each record is an event of CUDA of its own, or the host's signal.
#include <cstddef>
#include <memory>

#include "backends/cuda/stream.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cuda {
namespace {

constexpr bp_event_flags kEventFlags = BP_EVENT_TIMING | BP_EVENT_HOST_SIGNAL | BP_EVENT_EXPORTABLE;

bp_status event_create(void* self, bp_device* handle, const bp_event_desc* desc,
                       bp_event** out_event) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "event.create");
    require(out_event, "event.create: out_event");
    const auto request =
        read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
    if ((request.flags & ~kEventFlags) != 0 || request.reserved != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.create: flags is " + std::to_string(request.flags) +
                                      ", reserved is " + std::to_string(request.reserved) +
                                      "; known are bits " + std::to_string(kEventFlags) +
                                      ", and 0");
    }
    if ((request.flags & BP_EVENT_EXPORTABLE) != 0) {
      refuse(BP_UNSUPPORTED,
             "event.create: flags has BP_EVENT_EXPORTABLE, and events of this "
             "backend are not shared between processes");
    }
    auto e = std::make_unique<Event>();
    e->device = &d;
    e->flags = request.flags;
    if ((request.flags & BP_EVENT_HOST_SIGNAL) != 0) {
      e->record = std::make_shared<Record>(std::make_shared<Point>(false));
    }
    d.add(e.get());
    *out_event = reinterpret_cast<bp_event*>(e.release());
    return BP_OK;
  });
}

bp_status event_destroy(void* self, bp_event* handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) -> bp_status {
    Event* const e = event_or_null(handle);
    if (e == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "event.destroy: event is not one of this backend");
    }
    e->device->remove(e);
    e->magic = 0;
    delete e;
    return BP_OK;
  });
}

// What the record waits for on the host goes with `submitted`, what it waits for on the device with
// the CUDA event, which is a new one: streams that wait for the record before go on doing so.
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

bp_status event_record(void* self, bp_event* handle, bp_stream* stream_handle) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Event& e = event_of(handle, "event.record");
    Lane& lane = lane_of(stream_handle, "event.record");
    if ((e.flags & BP_EVENT_HOST_SIGNAL) != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.record: the event is host-signalled");
    }
    const bool is_timed = (e.flags & BP_EVENT_TIMING) != 0;
    auto record = std::make_shared<Record>(std::make_shared<Point>(false));
    // Under the lock, so that of two racing records the later submission is the one that counts.
    const std::lock_guard lock(e.mutex);
    const bp_status status = lane.submit_always([&lane, record, is_timed](const Outcome& before) {
      submit_record(lane, *record, is_timed, before);
    });
    if (status != BP_OK) return status;
    if (record->submitted->is_complete() && record->error.status != BP_OK) {
      return i.fail(record->error.status, "event.record: " + record->error.text);
    }
    e.record = std::move(record);
    return BP_OK;
  });
}

// Whether what was recorded has happened on the device; `record` was submitted.
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

// Blocks until it has; true.
bool wait_for(Event& e, const Record& record) {
  try {
    record.native->synchronize();
  } catch (const CudaError& error) {
    e.device->note(error);
    if (!e.device->is_lost()) throw;
  }
  return true;
}

bp_status event_query(void* self, bp_event* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) -> bp_status {
    Event& e = event_of(handle, "event.query");
    require(out_done, "event.query: out_done");
    const std::shared_ptr<Record> record = e.latest();
    const bool is_done =
        record == nullptr || (record->submitted->is_complete() && has_happened(e, *record));
    *out_done = is_done ? 1 : 0;
    return BP_OK;
  });
}

// The failure that a record carries.
bp_status surface_record(const Instance& i, const Event& e, const Record& record) {
  if (e.device->is_lost()) return i.fail(BP_DEVICE_LOST, e.device->loss());
  for (const FaultMark& mark : record.marks) {
    if (mark.has_fired()) return i.fail(kFaultStatus, mark.slot->text());
  }
  const Outcome& outcome = record.submitted->outcome();
  return outcome.status == BP_OK ? bp_status{BP_OK} : i.fail(outcome.status, outcome.text);
}

bp_status event_synchronize(void* self, bp_event* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Event& e = event_of(handle, "event.synchronize");
    const std::shared_ptr<Record> record = e.latest();
    if (record == nullptr) return BP_OK;
    const auto begin = std::chrono::steady_clock::now();
    bool is_done = record->submitted->wait(timeout_ns);
    if (is_done && record->native != nullptr) {
      is_done = timeout_ns == UINT64_MAX
                    ? wait_for(e, *record)
                    : poll(left_of(timeout_ns, begin), [&] { return has_happened(e, *record); });
    }
    if (!is_done) return timed_out(i, "event.synchronize", timeout_ns);
    return surface_record(i, e, *record);
  });
}

// The CUDA event of a record that has completed, for elapsed_ns.
const NativeEvent& completed(Event& event, const std::string& name,
                             std::shared_ptr<Record>& record) {
  if ((event.flags & BP_EVENT_TIMING) == 0) {
    refuse(BP_INVALID_ARGUMENT, name + " was made without BP_EVENT_TIMING");
  }
  record = event.latest();
  const bool has_come = record != nullptr && record->submitted->is_complete();
  if (!has_come || record->native == nullptr || !has_happened(event, *record)) {
    refuse(BP_INVALID_ARGUMENT, name + " has not completed");
  }
  return *record->native;
}

bp_status event_elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  return entry(self, [&](const Instance&) -> bp_status {
    Event& first = event_of(start, "event.elapsed_ns", "start");
    Event& last = event_of(end, "event.elapsed_ns", "end");
    require(out_elapsed_ns, "event.elapsed_ns: out_elapsed_ns");
    std::shared_ptr<Record> keep_first, keep_last;
    const NativeEvent& begin = completed(first, "event.elapsed_ns: start", keep_first);
    const NativeEvent& stop = completed(last, "event.elapsed_ns: end", keep_last);
    if (begin.device().ordinal() != stop.device().ordinal()) {
      refuse(BP_UNSUPPORTED,
             "event.elapsed_ns: start and end were recorded on two devices, whose clocks differ");
    }
    const Current current(begin.device());
    float milliseconds = 0;
    const Driver& driver = begin.device().driver();
    check(driver, driver.cudaEventElapsedTime(&milliseconds, begin.get(), stop.get()),
          "cudaEventElapsedTime");
    *out_elapsed_ns = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    return BP_OK;
  });
}

bp_status event_signal(void* self, bp_event* handle, bp_status status) {
  return entry(self, [&](const Instance&) -> bp_status {
    Event& e = event_of(handle, "event.signal");
    if ((e.flags & BP_EVENT_HOST_SIGNAL) == 0) {
      refuse(BP_INVALID_ARGUMENT, "event.signal: the event is not host-signalled");
    }
    const char* const text = status == BP_OK ? "" : "the host signalled a failure";
    if (!e.latest()->submitted->complete({.status = status, .text = text})) {
      refuse(BP_INVALID_ARGUMENT, "event.signal: the event is signalled already");
    }
    return BP_OK;
  });
}

}  // namespace

Event& event_of(bp_event* handle, const char* call, const char* what) {
  Event* const e = event_or_null(handle);
  if (e == nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           std::string(call) + ": " + what + " is NULL or not one of this backend");
  }
  if (e->device->is_lost()) refuse(BP_DEVICE_LOST, std::string(call) + ": " + e->device->loss());
  return *e;
}

constinit const bp_event_ops kEvents{
    .struct_size = sizeof(bp_event_ops),
    .struct_type = BP_STRUCT_EVENT_OPS,
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
    .elapsed_ns = event_elapsed_ns,
    .signal = event_signal,
};

}  // namespace bp::cuda
