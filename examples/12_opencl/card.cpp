#include "card.hpp"

#include <vector>

#include "device.hpp"

namespace acme_opencl {

std::shared_ptr<Context> Card::context() {
  const std::lock_guard lock(mutex_);
  if (context_ == nullptr) context_ = std::make_shared<Context>(info_);
  return context_;
}

bool Card::is_open() const {
  const std::lock_guard lock(mutex_);
  return context_ != nullptr;
}

void Card::reset(Device& device) {
  SharedCard::reset(device, [this] {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  });
}

std::shared_ptr<Card> card_of(uint32_t index, const DeviceInfo& info) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Card>> cards;
  const std::lock_guard lock(mutex);
  if (index >= cards.size()) cards.resize(index + 1);
  std::shared_ptr<Card> card = cards[index].lock();
  if (card == nullptr) cards[index] = card = std::make_shared<Card>(info);
  return card;
}

}  // namespace acme_opencl
