// A device of the machine as this process uses it, which is called a card. The devices of all
// instances of a backend share it, so a loss ends the work of all of them. It stands for the
// hardware, so it knows no host.
//
//   class Card : public SharedCard<Device> {
//     ...
//   };
//
// A Device is a card as one instance sees it. It has
//   end_work()     ends its queued work, because the card is lost
//   is_in_use()    returns whether the host has handles of it
//   end_handles()  waits for running work, and frees the memory of all buffers; from then on the
//                  handles are dead
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Locks      No device is called under a lock that lose() or detach() takes, because a call may
//              lead to code of a host.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "backplane/shell/attached.hpp"
#include "backplane/shell/entry.hpp"

namespace bp {

template <typename Device>
class SharedCard {
 public:
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // The device of an instance is attached until the instance shuts down. detach() blocks while
  // other threads call the device for this card. The instance must detach it before its executor
  // stops, because a loss that another instance reports schedules work.
  void attach(Device* device) { attached_.add(device); }
  void detach(Device* device) { attached_.remove(device); }

  // Ends all work on the card. Later calls on it fail with BP_DEVICE_LOST.
  void lose() {
    mark_lost();
    end_work();
  }

  // Makes the card usable again for `device`, and ends all handles of that device. Throws
  // StatusError of BP_UNSUPPORTED while another instance uses the card.
  void reset(Device& device) {
    reset(device, [] {});
  }

 protected:
  // Calls renew() when no work runs any more, and before the card is usable again.
  template <typename Renew>
  void reset(Device& device, const Renew& renew) {
    const std::lock_guard one_at_a_time(reset_mutex_);
    for_each([&](const Device& other) {
      if (&other == &device || !other.is_in_use()) return;
      refuse(BP_UNSUPPORTED,
             "device.reset: another instance has buffers, streams or other handles of the device");
    });
    lose();
    device.end_handles();
    renew();
    ++generation_;
    is_lost_ = false;
  }

  // The two parts of lose(), for a card that must not be lost twice.
  void mark_lost() { is_lost_ = true; }
  void end_work() {
    for_each([](Device& device) { device.end_work(); });
  }

  // Calls use(Device&) for each attached device, and holds no lock while it calls.
  template <typename Use>
  void for_each(const Use& use) const {
    attached_.for_each(use);
  }

 private:
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex reset_mutex_;  // It allows one reset at a time.
  AttachedDevices<Device> attached_;
};

}  // namespace bp
