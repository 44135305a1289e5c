// Activity records for backends whose work runs as tasks on threads. A record is made when work is
// submitted. The thread that runs the work stamps the record and gives it to the host.
//
// While nothing is recorded, a submission costs one relaxed load.
#pragma once

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

  // What a record tells the host about a piece of work.
  struct Description {
    bp_activity_kind kind;
    const char* name;
    bp_device* device;
    bp_stream* stream;
    uint64_t correlation_id = 0;
    uint64_t bytes = 0;
  };

  explicit Profiler(const ProfilerBackend& backend) : backend_(backend) {}
  Profiler(const Profiler&) = delete;

  bp_profiler_ops table();

  // Returns NULL if such work is not recorded.
  std::shared_ptr<Activity> begin(const Description& description);

  // Returns a task that runs `task` and leaves a record, if such work is recorded now. Call it only
  // if the hooks say that a device is recorded.
  std::function<void()> recorded(const Description& description, std::function<void()> task);

 private:
  bp_status start(bp_device* device, const bp_profile_desc* desc);
  bp_status stop(bp_device* device);
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

}  // namespace bp
