#include "backends/vulkan/card.hpp"

#include <utility>

#include "backends/vulkan/device.hpp"

namespace bp::vulkan {

Card::Card(Physical physical, ContextOptions options)
    : physical_(std::move(physical)), options_(std::move(options)) {
  options_.log = [this](bp_log_level level, const std::string& text) { log(level, text); };
}

std::shared_ptr<Engine> Card::engine() {
  const std::lock_guard lock(engine_mutex_);
  if (engine_ == nullptr) {
    engine_ = std::make_shared<Engine>(std::make_shared<Context>(physical_, options_));
    engine_->recorder.set_on_lost([weak = weak_from_this(), lost = engine_.get()] {
      if (const std::shared_ptr<Card> card = weak.lock()) card->lose_engine(lost);
    });
  }
  return engine_;
}

std::shared_ptr<Engine> Card::engine_if_open() const {
  const std::lock_guard lock(engine_mutex_);
  return engine_;
}

bool Card::is_lost() const {
  if (SharedCard::is_lost()) return true;
  const std::shared_ptr<Engine> engine = engine_if_open();
  return engine != nullptr && engine->recorder.is_lost();
}

void Card::add(const std::shared_ptr<Memory>& memory) {
  const std::lock_guard lock(memory_mutex_);
  if (memories_.size() >= 2 * swept_count_ + 64) {
    std::erase_if(memories_, [](const auto& entry) { return entry.second.expired(); });
    swept_count_ = memories_.size();
  }
  memories_[memory->address()] = memory;
}

std::shared_ptr<Memory> Card::find(uint64_t address) {
  const std::lock_guard lock(memory_mutex_);
  const auto next = memories_.upper_bound(address);
  if (next == memories_.begin()) return nullptr;
  std::shared_ptr<Memory> memory = std::prev(next)->second.lock();
  if (memory == nullptr || address - memory->address() >= memory->size_bytes()) return nullptr;
  return memory;
}

// Loses the engine, unless a reset has already replaced it.
void Card::lose_engine(const Engine* lost) {
  {
    const std::lock_guard lock(engine_mutex_);
    if (engine_.get() != lost) return;
    mark_lost();
  }
  end_work();
}

std::string Card::loss() const {
  const std::shared_ptr<Engine> engine = engine_if_open();
  const std::string text = engine == nullptr ? "" : engine->recorder.loss();
  return text.empty() ? "" : ": " + text;
}

void Card::reset(Device& device) {
  SharedCard::reset(device, [this] { close_engine(); });
}

void Card::close_engine() {
  std::shared_ptr<Engine> old;
  {
    const std::lock_guard lock(engine_mutex_);
    old = std::exchange(engine_, nullptr);
  }
  if (old != nullptr) old->recorder.drain();
}

void Card::log(bp_log_level level, const std::string& text) const {
  for_each([&](const Device& device) {
    const bp_host& host = *device.owner().host;
    host.log_line(host.self, level, text.c_str());
  });
}

std::shared_ptr<Card> card_of(const Physical& physical, const ContextOptions& options) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Card>> cards;
  const std::lock_guard lock(mutex);
  std::erase_if(cards, [](const std::weak_ptr<Card>& card) { return card.expired(); });
  for (const std::weak_ptr<Card>& known : cards) {
    std::shared_ptr<Card> card = known.lock();
    if (card != nullptr && card->physical().uuid == physical.uuid &&
        card->physical().index == physical.index && card->options() == options) {
      return card;
    }
  }
  auto card = std::make_shared<Card>(physical, options);
  cards.push_back(card);
  return card;
}

}  // namespace bp::vulkan
