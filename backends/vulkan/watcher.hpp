// A thread that runs jobs on the host when work on the device has ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace bp::vulkan {

// A value of a device's timeline.
using Ticket = uint64_t;

class Watcher {
 public:
  // wait(ticket) blocks until the timeline has reached it, and does not throw.
  explicit Watcher(std::function<void(Ticket)> wait) : wait_(std::move(wait)) {}
  Watcher(const Watcher&) = delete;
  ~Watcher() { stop(); }

  // Runs `job`, which must not throw, when `ticket` has ended. Work that has a ticket here is
  // already submitted to the device.
  void add(Ticket ticket, std::function<void()> job);

  // Returns whether the jobs up to `ticket` have run.
  bool is_done(Ticket ticket);

  // Waits for the jobs up to `ticket`. Returns false if timeout_ns passed first.
  bool wait(Ticket ticket, uint64_t timeout_ns);

  // Runs the remaining jobs, and ends the thread.
  void stop();

 private:
  void run();

  const std::function<void(Ticket)> wait_;
  std::mutex mutex_;  // It guards the members below.
  std::condition_variable added_, ran_;
  std::multimap<Ticket, std::function<void()>> jobs_;  // A job stays until it has run.
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace bp::vulkan
