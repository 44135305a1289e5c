#include "stream.hpp"

#include <functional>
#include <utility>

#include "backend.hpp"

namespace acme_opencl {
namespace {

struct Traits : bp::QueueStreams<Instance, Device, Stream, Event> {
  using Semaphore = acme_opencl::Semaphore;

  static bool wait(const Stream& s, uint64_t timeout_ns) { return s.queue->wait(timeout_ns); }
  static bp_status wait_for(const Stream& s, const std::shared_ptr<bp::Point>& point) {
    return s.queue->wait_behind(point);
  }
  static bp_status run_behind(const Stream& s, std::function<void(const bp::Outcome&)> task) {
    return s.queue->run_behind(std::move(task));
  }
  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* callback, void* user_data) {
    return run_behind(s, [callback, user_data](const bp::Outcome& before) {
      callback(user_data, before.status);
    });
  }
  static bp_status record(const Stream& s, const Event&, const std::shared_ptr<bp::Point>& point) {
    return run_behind(s, [point](const bp::Outcome& before) { point->complete(before); });
  }
};

}  // namespace

constinit const bp_stream_ops kStreams = bp::StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = bp::EventOps<Traits>::table();
constinit const bp_semaphore_ops kSemaphores = bp::SemaphoreOps<Traits>::table();

}  // namespace acme_opencl
