#include "registry/groups/staged_courier.hpp"

#include <utility>

namespace bp::core {

StagedCourier::~StagedCourier() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (const auto& [target, stream] : streams_) {
    static_cast<void>(target->streams->destroy(target->streams->self, stream));
  }
}

void StagedCourier::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

bp_stream* StagedCourier::stream_of(const bp_target& target) {
  const bp_stream_ops& streams = *target.streams;
  bp_stream*& stream = streams_[&target];
  if (stream == nullptr) {
    static_cast<void>(streams.create(streams.self, target.device, nullptr, &stream));
  } else if (streams.status(streams.self, stream) != BP_OK) {
    static_cast<void>(streams.clear_failure(streams.self, stream));
  }
  return stream;
}

void StagedCourier::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace bp::core
