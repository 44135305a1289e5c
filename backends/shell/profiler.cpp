#include "backplane/shell/profiler.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp {
namespace {

// Bit k stands for kind k.
constexpr uint32_t kAllKinds = (2u << BP_ACTIVITY_DROPPED) - 2;

uint32_t read_kinds(const bp_profile_desc& desc) {
  if (desc.kind_count == 0) return kAllKinds;
  if (desc.kinds == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "profiler.start: kinds is NULL, but its count is " +
                                               std::to_string(desc.kind_count));
  }
  uint32_t kinds = 0;
  for (uint64_t i = 0; i < desc.kind_count; ++i) {
    const bp_activity_kind kind = desc.kinds[i];
    if (kind < BP_ACTIVITY_KERNEL || kind > BP_ACTIVITY_DROPPED) {
      throw StatusError(BP_UNSUPPORTED, "profiler.start: kind " + std::to_string(kind) +
                                            " is not known; the kinds 1 to 6 are");
    }
    kinds |= 1u << kind;
  }
  return kinds;
}

Profiler& profiler(void* self) { return *static_cast<Profiler*>(self); }

}  // namespace

// One recording of one device.
struct Profiler::Session {
  ProfilerBackend backend{};  // Work may end after the profiler, so this is a copy.
  bp_device* device = nullptr;
  bp_profile_desc request{};
  uint32_t kinds = 0;

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t pending = 0;   // Activities that have not ended. `mutex` guards it.
  uint64_t stopping = 0;  // Calls of stop() that wait. The profiler's mutex guards it.

  int64_t now_ns() const { return backend.now_ns(backend.self, device); }
};

Profiler::Activity::Activity(std::shared_ptr<Session> session, const bp_activity& data)
    : session_(std::move(session)), data_(data) {
  const std::lock_guard lock(session_->mutex);
  ++session_->pending;
}

Profiler::Activity::~Activity() {
  const std::lock_guard lock(session_->mutex);
  if (--session_->pending == 0) session_->changed.notify_all();
}

void Profiler::Activity::start() { data_.start_ns = session_->now_ns(); }

void Profiler::Activity::finish() {
  data_.end_ns = session_->now_ns();
  session_->request.sink(session_->request.user_data, &data_);
}

std::shared_ptr<Profiler::Activity> Profiler::begin(const WorkName& work, bp_device* device,
                                                    bp_stream* stream) {
  std::shared_ptr<Session> session;
  bp_activity data{};
  data.struct_size = sizeof(data);
  data.struct_type = BP_STRUCT_ACTIVITY;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(device);
    if (found == sessions_.end() || found->second->stopping != 0) return nullptr;
    session = found->second;
    const auto pushed = pushed_.find(std::this_thread::get_id());
    if (pushed != pushed_.end()) data.external_correlation = pushed->second.back();
    if ((session->kinds >> work.kind & 1) == 0) return nullptr;
    data.name = work.name;
    data.device = device;
    data.stream = stream;
    data.correlation_id = work.correlation_id;
    data.bytes = work.bytes;
    data.kind = work.kind;
    // The activity is counted under the lock: either stop() sees it, or begin() sees that the
    // session stops.
    return std::make_shared<Activity>(std::move(session), data);
  }
}

std::function<void()> Profiler::recorded(const WorkName& work, bp_device* device, bp_stream* stream,
                                         std::function<void()> task) {
  std::shared_ptr<Activity> activity = begin(work, device, stream);
  if (activity == nullptr) return task;
  return [activity = std::move(activity), task = std::move(task)] {
    activity->start();
    task();
    activity->finish();
  };
}

bp_status Profiler::check_device(bp_device* device, const char* call) const {
  if (backend_.is_device(backend_.self, device)) return BP_OK;
  return fail(BP_INVALID_ARGUMENT,
              std::string(call) + ": device is NULL or not one of this backend");
}

bp_status Profiler::start(bp_device* device, const bp_profile_desc* desc) {
  if (const bp_status status = check_device(device, "profiler.start"); status != BP_OK) {
    return status;
  }
  auto session = std::make_shared<Session>();
  session->backend = backend_;
  session->device = device;
  session->request =
      read_desc(desc, kFirstSize<bp_profile_desc>, BP_STRUCT_PROFILE_DESC, "profiler.start");
  if (session->request.sink == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "profiler.start: sink is NULL");
  }
  session->kinds = read_kinds(session->request);
  const std::lock_guard lock(mutex_);
  if (!sessions_.emplace(device, std::move(session)).second) {
    throw StatusError(BP_ALREADY_EXISTS, "profiler.start: the device is recorded already");
  }
  backend_.hooks->recorded_devices.fetch_add(1, std::memory_order_relaxed);
  return BP_OK;
}

// While calls wait, the session records nothing more. It ends with the first that has waited long
// enough, and goes on if none has.
bp_status Profiler::stop(bp_device* device, uint64_t timeout_ns) {
  if (const bp_status status = check_device(device, "profiler.stop"); status != BP_OK) {
    return status;
  }
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(device);
    if (found == sessions_.end()) return BP_OK;
    session = found->second;
    ++session->stopping;
  }
  bool has_ended = false;
  {
    std::unique_lock lock(session->mutex);
    has_ended = wait_on(session->changed, lock, timeout_ns, [&] { return session->pending == 0; });
  }
  {
    const std::lock_guard lock(mutex_);
    --session->stopping;
    const auto found = sessions_.find(device);
    if (has_ended && found != sessions_.end() && found->second == session) {
      sessions_.erase(found);
      backend_.hooks->recorded_devices.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  if (!has_ended) refuse_timeout("profiler.stop", timeout_ns);
  return BP_OK;
}

bp_status Profiler::push(uint64_t id) {
  const std::lock_guard lock(mutex_);
  pushed_[std::this_thread::get_id()].push_back(id);
  return BP_OK;
}

bp_status Profiler::pop() {
  const std::lock_guard lock(mutex_);
  const auto found = pushed_.find(std::this_thread::get_id());
  if (found == pushed_.end()) {
    throw StatusError(BP_INVALID_ARGUMENT, "pop_correlation: this thread has pushed nothing");
  }
  found->second.pop_back();
  if (found->second.empty()) pushed_.erase(found);
  return BP_OK;
}

// Reads the host's clock before and after the device's, several times, and uses the closest pair.
bp_status Profiler::calibrate(bp_device* device, int64_t* out_device_ns, int64_t* out_host_ns,
                              int64_t* out_error_ns) {
  if (const bp_status status = check_device(device, "calibrate"); status != BP_OK) return status;
  if (out_device_ns == nullptr || out_host_ns == nullptr || out_error_ns == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "calibrate: an out parameter is NULL");
  }
  int64_t best_ns = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = host_now_ns(), device_ns = backend_.now_ns(backend_.self, device),
                  after = host_now_ns();
    if (after - before >= best_ns) continue;
    best_ns = after - before;
    *out_device_ns = device_ns;
    *out_host_ns = before + best_ns / 2;
    *out_error_ns = best_ns - best_ns / 2;
  }
  return BP_OK;
}

bp_profiler_ops Profiler::table() {
  return {.struct_size = sizeof(bp_profiler_ops),
          .struct_type = BP_STRUCT_PROFILER_OPS,
          .next = nullptr,
          .self = this,
          .start =
              [](void* self, bp_device* device, const bp_profile_desc* desc) {
                Profiler& p = profiler(self);
                return guarded(*p.backend_.host, [&] { return p.start(device, desc); });
              },
          .stop =
              [](void* self, bp_device* device, uint64_t timeout_ns) {
                Profiler& p = profiler(self);
                return guarded(*p.backend_.host, [&] { return p.stop(device, timeout_ns); });
              },
          // The host gets each record as soon as its work has ended, so there is nothing to flush.
          .flush =
              [](void* self, bp_device* device) {
                return profiler(self).check_device(device, "profiler.flush");
              },
          .push_correlation =
              [](void* self, uint64_t id) {
                Profiler& p = profiler(self);
                return guarded(*p.backend_.host, [&] { return p.push(id); });
              },
          .pop_correlation =
              [](void* self) {
                Profiler& p = profiler(self);
                return guarded(*p.backend_.host, [&] { return p.pop(); });
              },
          .calibrate =
              [](void* self, bp_device* device, int64_t* out_device_ns, int64_t* out_host_ns,
                 int64_t* out_error_ns) {
                return profiler(self).calibrate(device, out_device_ns, out_host_ns, out_error_ns);
              }};
}

}  // namespace bp
