#include "backends/sim/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "backends/common/boundary.hpp"

namespace bp::sim {
namespace {

constexpr std::byte kCanary{0xC5};

uint64_t system_page_bytes() {
  static const auto size_bytes = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  return size_bytes;
}

uint64_t with_guards(uint64_t size_bytes, uint64_t page_bytes) {
  return (size_bytes + page_bytes - 1) / page_bytes * page_bytes + 2 * page_bytes;
}

[[noreturn]] void refuse_allocation(uint64_t size_bytes, const std::string& why) {
  throw StatusError(BP_OUT_OF_MEMORY, "allocate: " + std::to_string(size_bytes) +
                                          " bytes were asked for, and " + why);
}

}  // namespace

Pages::Pages(Place place, uint64_t size_bytes)
    : place_(std::move(place)),
      size_bytes_(size_bytes),
      page_bytes_(system_page_bytes()),
      total_bytes_(with_guards(size_bytes, page_bytes_)),
      protection_(PROT_NONE) {
  Card& card = *place_.card;
  if (!card.take(place_.heap, data_bytes(), place_.capacity_bytes)) {
    const uint64_t used = std::min(place_.capacity_bytes, card.used_bytes(place_.heap));
    refuse_allocation(size_bytes, "the heap has " + std::to_string(place_.capacity_bytes - used) +
                                      " free of " + std::to_string(place_.capacity_bytes));
  }
  void* const base =
      mmap(nullptr, total_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    card.give_back(place_.heap, data_bytes());
    refuse_allocation(size_bytes, "the system has no room");
  }
  base_ = static_cast<std::byte*>(base);
  address_ = base_ + page_bytes_;
}

std::shared_ptr<Pages> Pages::allocate(Place place, uint64_t size_bytes) {
  auto pages = std::make_shared<Pages>(std::move(place), size_bytes);
  pages->open(Access::kWrite);
  std::fill_n(pages->address_ + size_bytes, pages->slack_bytes(), kCanary);
  pages->close(Access::kWrite);
  return pages;
}

Pages::~Pages() {
  discard();
  const std::lock_guard lock(mutex_);
  unmap();  // Also what a host mapped and freed.
}

void Pages::open(Access access) {
  const std::lock_guard lock(mutex_);
  if (is_discarded_) {
    throw StatusError(BP_DEVICE_LOST, "the memory ended when its device was reset");
  }
  if (!is_born_) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "stream-ordered memory was used before its allocation in stream order");
  }
  uint32_t& users = access == Access::kWrite ? writers_ : readers_;
  ++users;
  if (protect()) return;
  --users;
  throw StatusError(BP_OUT_OF_MEMORY, "the system could not change the protection of pages");
}

void Pages::close(Access access) {
  const std::lock_guard lock(mutex_);
  --(access == Access::kWrite ? writers_ : readers_);
  if (is_discarded_ && readers_ + writers_ == 0) return unmap();
  protect();  // Were it to fail, the memory would stay open: nothing is lost but a check.
}

void Pages::discard() {
  const std::lock_guard lock(mutex_);
  if (is_discarded_) return;
  is_discarded_ = true;
  place_.card->give_back(place_.heap, data_bytes());
  if (readers_ + writers_ == 0) unmap();
}

Pages::Damage Pages::damage() {
  Damage damage;
  if (slack_bytes() == 0) return damage;
  try {
    open(Access::kRead);
  } catch (const StatusError&) {
    return damage;  // It has ended already, or never began.
  }
  for (uint64_t byte = data_bytes(); byte-- > size_bytes_;) {
    if (address_[byte] == kCanary) continue;
    ++damage.count;
    damage.first_byte = byte;
  }
  close(Access::kRead);
  return damage;
}

// Called with the mutex.
bool Pages::protect() {
  int wanted = PROT_READ | PROT_WRITE;
  if (place_.is_protected && writers_ == 0) wanted = readers_ > 0 ? PROT_READ : PROT_NONE;
  if (wanted == protection_ || data_bytes() == 0) return true;
  if (mprotect(address_, data_bytes(), wanted) != 0) return false;
  protection_ = wanted;
  return true;
}

// Called with the mutex.
void Pages::unmap() {
  if (!is_mapped_) return;
  is_mapped_ = false;
  munmap(base_, total_bytes_);
}

}  // namespace bp::sim
