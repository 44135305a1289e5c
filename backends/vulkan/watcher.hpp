// A thread that runs what has to happen on the host when work on the device has ended.
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

  // Runs `job`, which does not throw, when `ticket` has ended. What has a ticket is handed to the
  // device already.
  void add(Ticket ticket, std::function<void()> job);

  // Whether jobs up to `ticket` have run.
  bool is_done(Ticket ticket);

  // Waits for them. False if timeout_ns passed before.
  bool wait(Ticket ticket, uint64_t timeout_ns);

  // Runs what is left, and ends the thread.
  void stop();

 private:
  void run();

  const std::function<void(Ticket)> wait_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable added_, ran_;
  std::multimap<Ticket, std::function<void()>> jobs_;  // One stays until it has run.
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace bp::vulkan
