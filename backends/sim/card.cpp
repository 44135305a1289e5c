#include "backends/sim/card.hpp"

#include <algorithm>

#include "backends/sim/device.hpp"

namespace bp::sim {

bool Card::take(size_t heap, uint64_t size_bytes, uint64_t capacity_bytes) {
  std::atomic<uint64_t>& used = used_bytes_[heap];
  uint64_t before = used;
  do {
    if (before > capacity_bytes || size_bytes > capacity_bytes - before) return false;
  } while (!used.compare_exchange_weak(before, before + size_bytes));
  return true;
}

void Card::attach(Device* device) {
  const std::lock_guard lock(mutex_);
  devices_.push_back(device);
}

void Card::detach(Device* device) {
  const std::lock_guard lock(mutex_);
  std::erase(devices_, device);
}

void Card::lose() {
  const std::lock_guard lock(mutex_);
  is_lost_ = true;
  for (Device* const device : devices_) device->end_work();
}

void Card::reset(Device& device) {
  const std::lock_guard one_at_a_time(reset_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const bool is_shared = std::ranges::any_of(
        devices_, [&](const Device* other) { return other != &device && other->is_in_use(); });
    if (is_shared) {
      throw StatusError(BP_UNSUPPORTED, "device.reset: another instance uses the device");
    }
    is_lost_ = true;
    for (Device* const user : devices_) user->end_work();
  }
  // Without the mutex: callbacks run until then, and may ask the device for something.
  device.end_handles();
  ++generation_;
  is_lost_ = false;
}

std::shared_ptr<Card> card_in_slot(uint32_t index) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Card>> slots;
  const std::lock_guard lock(mutex);
  if (index >= slots.size()) slots.resize(index + 1);
  std::shared_ptr<Card> card = slots[index].lock();
  if (card == nullptr) slots[index] = card = std::make_shared<Card>();
  return card;
}

}  // namespace bp::sim
