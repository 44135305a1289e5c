// Activity records for backends whose work runs as tasks on threads. A record is made when work is
// submitted. The thread that runs the work stamps the record and gives it to the host.
//
// While nothing is recorded, a submission costs one relaxed load.
//
//   offer_profiler<Cards<Instance, Device>>(instance);
//   if (i.hooks.is_recording()) task = recorded(*i.profiler, stream, work, std::move(task));
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backplane/profiler.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/hooks.hpp"

namespace bp {

// What a record says of a piece of work. `bytes` counts the bytes that the work reads and writes.
struct WorkName {
  bp_activity_kind kind;
  const char* name;
  uint64_t bytes = 0, correlation_id = 0;
};

// What the profiler needs of a backend. `self` is the argument of the backend's functions.
struct ProfilerBackend {
  const bp_host* host;
  Hooks* hooks;
  void* self;
  bool (*is_device)(void* self, bp_device* device);
  int64_t (*now_ns)(void* self, bp_device* device);  // Reads the device's clock.
};

class Profiler {
  struct Session;

 public:
  // One piece of work that was submitted. Work that is not finished leaves no record.
  class Activity {
   public:
    Activity(std::shared_ptr<Session> session, const bp_activity& data);
    Activity(const Activity&) = delete;
    ~Activity();

    void start();
    void finish();

   private:
    const std::shared_ptr<Session> session_;
    bp_activity data_;
  };

  explicit Profiler(const ProfilerBackend& backend) : backend_(backend) {}
  Profiler(const Profiler&) = delete;

  bp_profiler_ops table();

  // Returns NULL if such work is not recorded.
  std::shared_ptr<Activity> begin(const WorkName& work, bp_device* device, bp_stream* stream);

  // Returns a task that runs `task` and leaves a record, if such work is recorded now. Call it only
  // if the hooks say that a device is recorded.
  std::function<void()> recorded(const WorkName& work, bp_device* device, bp_stream* stream,
                                 std::function<void()> task);

 private:
  bp_status start(bp_device* device, const bp_profile_desc* desc);
  bp_status stop(bp_device* device, uint64_t timeout_ns);
  bp_status check_device(bp_device* device, const char* call) const;
  bp_status push(uint64_t id);
  bp_status pop();
  bp_status calibrate(bp_device* device, int64_t* out_device_ns, int64_t* out_host_ns,
                      int64_t* out_error_ns);
  bp_status fail(bp_status status, const std::string& text) const {
    return backend_.host->set_error(backend_.host->self, status, text.c_str());
  }

  const ProfilerBackend backend_;
  std::mutex mutex_;  // It guards the members below.
  std::unordered_map<bp_device*, std::shared_ptr<Session>> sessions_;
  std::unordered_map<std::thread::id, std::vector<uint64_t>> pushed_;
};

// Returns the same for work of `stream`, the object behind a handle, which has its `device`.
template <typename Stream>
std::function<void()> recorded(Profiler& profiler, const Stream& stream, const WorkName& work,
                               std::function<void()> task) {
  const Stream* const handle = stream.device->handle_of(&stream);
  return profiler.recorded(work, reinterpret_cast<bp_device*>(stream.device),
                           reinterpret_cast<bp_stream*>(const_cast<Stream*>(handle)),
                           std::move(task));
}

// Returns the time of CLOCK_MONOTONIC.
inline int64_t host_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Makes the profiler of an instance, and fills its table. `Traits` has these types and static
// members, of which Cards of lookup.hpp has the first three:
//   Instance                  has host, hooks, profiler, and the table `profiling`
//   Device
//   find(instance, handle)    the device behind a handle; NULL if it is none of the instance
//   now_ns(device)            optional: the time of the device's clock, if it has one of its own
template <typename Traits>
void offer_profiler(typename Traits::Instance& i) {
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;
  i.profiler = std::make_unique<Profiler>(ProfilerBackend{
      .host = i.host,
      .hooks = &i.hooks,
      .self = &i,
      .is_device =
          [](void* self, bp_device* handle) {
            return Traits::find(*static_cast<const Instance*>(self), handle) != nullptr;
          },
      .now_ns = [](void*, bp_device* handle) -> int64_t {
        if constexpr (requires(const Device& device) { Traits::now_ns(device); }) {
          return Traits::now_ns(*reinterpret_cast<const Device*>(handle));
        } else {
          return host_now_ns();
        }
      }});
  i.profiling = i.profiler->table();
}

}  // namespace bp
