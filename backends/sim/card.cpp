#include "backends/sim/card.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/sim/pages.hpp"
#include "backplane/shell/boundary.hpp"

namespace bp::sim {

bool Card::take(size_t heap, uint64_t size_bytes, uint64_t capacity_bytes) {
  std::atomic<uint64_t>& used = used_bytes_[heap];
  uint64_t before = used;
  do {
    if (before > capacity_bytes || size_bytes > capacity_bytes - before) return false;
  } while (!used.compare_exchange_weak(before, before + size_bytes));
  return true;
}

void Card::add(Memory& memory) {
  const std::lock_guard lock(memory_mutex_);
  memories_.add(reinterpret_cast<uintptr_t>(memory.address()), memory.size_bytes(), &memory);
}

void Card::remove(Memory& memory) {
  const std::lock_guard lock(memory_mutex_);
  memories_.remove(reinterpret_cast<uintptr_t>(memory.address()), &memory);
}

std::shared_ptr<Memory> Card::find(uint64_t address) {
  const std::lock_guard lock(memory_mutex_);
  Memory* const found = memories_.find(address);
  return found == nullptr ? nullptr : found->weak_from_this().lock();
}

Room::Room(const char* call, const Place& place, uint64_t asked_bytes, uint64_t taken_bytes)
    : card_(place.card), heap_(place.heap), size_bytes_(taken_bytes) {
  if (card_->take(heap_, size_bytes_, place.capacity_bytes)) return;
  const uint64_t used = std::min(place.capacity_bytes, card_->used_bytes(heap_));
  throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": " + std::to_string(asked_bytes) +
                                          " bytes were asked for, and the heap has " +
                                          std::to_string(place.capacity_bytes - used) +
                                          " free of " + std::to_string(place.capacity_bytes));
}

void Room::end() {
  if (!has_ended_.exchange(true)) card_->give_back(heap_, size_bytes_);
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
