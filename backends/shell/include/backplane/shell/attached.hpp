// The devices that are attached to a card. Each is of one instance, which may shut down while
// another instance calls all of them.
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Locks      for_each() holds no lock while it calls, because a call may lead to code of a host.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace bp {

template <typename Device>
class AttachedDevices {
 public:
  void add(Device* device) {
    const std::lock_guard lock(mutex_);
    devices_.push_back(device);
  }

  // Removes a device, and blocks while for_each() calls it on other threads. A call on this thread
  // goes on, and must not use the device any more. A device that is not attached is no failure.
  void remove(Device* device) {
    std::unique_lock lock(mutex_);
    std::erase(devices_, device);
    const auto is_foreign = [&](const Call& call) {
      return call.device == device && call.thread != std::this_thread::get_id();
    };
    ended_.wait(lock, [&] { return std::ranges::none_of(calls_, is_foreign); });
  }

  // Calls use(Device&) for each device that is still attached when its turn comes.
  template <typename Use>
  void for_each(const Use& use) const {
    for (Device* const device : all()) {
      if (!begin(device)) continue;
      try {
        use(*device);
      } catch (...) {
        end(device);
        throw;
      }
      end(device);
    }
  }

 private:
  struct Call {
    Device* device;
    std::thread::id thread;
    bool operator==(const Call&) const = default;
  };

  std::vector<Device*> all() const {
    const std::lock_guard lock(mutex_);
    return devices_;
  }

  // Returns false if the device is not attached any more.
  bool begin(Device* device) const {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(devices_, device) == devices_.end()) return false;
    calls_.push_back({device, std::this_thread::get_id()});
    return true;
  }
  void end(Device* device) const {
    const std::lock_guard lock(mutex_);
    calls_.erase(std::ranges::find(calls_, Call{device, std::this_thread::get_id()}));
    ended_.notify_all();
  }

  mutable std::mutex mutex_;  // It guards the members below.
  mutable std::condition_variable ended_;
  std::vector<Device*> devices_;
  mutable std::vector<Call> calls_;  // Those that run.
};

}  // namespace bp
