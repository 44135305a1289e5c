#include "registry/calls/choices.hpp"

#include <utility>

namespace bp::core {
namespace {

constexpr uint64_t kFirstSlotCount = 256;

}  // namespace

Selection::Table::Table(uint64_t slot_count)
    : mask(slot_count - 1), slots(new std::atomic<const Choices*>[slot_count]) {
  for (uint64_t i = 0; i < slot_count; ++i) slots[i].store(nullptr, std::memory_order_relaxed);
}

Selection::Selection() {
  tables_.push_back(std::make_unique<Table>(kFirstSlotCount));
  table_.store(tables_.back().get(), std::memory_order_release);
}

void Selection::put(Table& table, const Choices* choices, uint64_t hash) {
  uint64_t i = hash & table.mask;
  while (table.slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & table.mask;
  table.slots[i].store(choices, std::memory_order_release);
  ++table.used_count;
}

// Returns the table in use. If it is half full, makes a table of twice the size and returns that.
Selection::Table& Selection::grown_locked() {
  Table& old = *tables_.back();
  if (old.used_count * 2 <= old.mask) return old;
  auto larger = std::make_unique<Table>((old.mask + 1) * 2);
  for (uint64_t i = 0; i <= old.mask; ++i) {
    const Choices* choices = old.slots[i].load(std::memory_order_relaxed);
    if (choices == nullptr) continue;
    put(*larger, choices, choices->hash);
  }
  tables_.push_back(std::move(larger));
  return *tables_.back();
}

const Choices* Selection::insert(std::unique_ptr<const Choices> choices, uint64_t hash,
                                 uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (generation == generation_.load(std::memory_order_relaxed)) {
    if (const Choices* other = find(choices->key, hash); other != nullptr) return other;
    Table& table = grown_locked();
    put(table, choices.get(), hash);
    table_.store(&table, std::memory_order_release);
  }
  choices_.push_back(std::move(choices));
  return choices_.back().get();
}

void Selection::clear() {
  const std::lock_guard lock(mutex_);
  generation_.fetch_add(1, std::memory_order_release);
  if (tables_.back()->used_count == 0) return;
  tables_.push_back(std::make_unique<Table>(kFirstSlotCount));
  table_.store(tables_.back().get(), std::memory_order_release);
}

}  // namespace bp::core
