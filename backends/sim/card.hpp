// The simulated hardware: what all instances of this library in one process have in common of one
// device. It stands for the card in the machine, so it knows no host, and it is the one thing here
// that is not part of an instance.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace bp::sim {

class Device;

constexpr size_t kMaxHeaps = 2;

class Card {
 public:
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Takes size_bytes of a heap that has capacity_bytes; false if there is no room.
  bool take(size_t heap, uint64_t size_bytes, uint64_t capacity_bytes);
  void give_back(size_t heap, uint64_t size_bytes) { used_bytes_[heap] -= size_bytes; }
  uint64_t used_bytes(size_t heap) const { return used_bytes_[heap]; }

  // The devices of instances, each for as long as it lives.
  void attach(Device* device);
  void detach(Device* device);

  // Ends all work on the card: from now on its calls fail with BP_DEVICE_LOST.
  void lose();

  // Brings the card back for `device`, whose handles all end. Throws StatusError of BP_UNSUPPORTED
  // while another instance uses the card.
  void reset(Device& device);

 private:
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> generation_ = 0;
  std::array<std::atomic<uint64_t>, kMaxHeaps> used_bytes_{};
  std::mutex reset_mutex_;  // One reset at a time.
  std::mutex mutex_;        // Guards `devices_`.
  std::vector<Device*> devices_;
};

// The card in slot `index` of the machine. It keeps its state while an instance has it.
std::shared_ptr<Card> card_in_slot(uint32_t index);

}  // namespace bp::sim
