#include "backends/sim/pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/memory_file.hpp"

namespace bp::sim {
namespace {

constexpr std::byte kCanary{0xC5};

uint64_t with_guards(uint64_t size_bytes, uint64_t page_bytes) {
  return (size_bytes + page_bytes - 1) / page_bytes * page_bytes + 2 * page_bytes;
}

[[noreturn]] void refuse_memory(const char* call, uint64_t size_bytes) {
  throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": " + std::to_string(size_bytes) +
                                          " bytes were asked for, and the system has no room");
}

}  // namespace

void Memory::check(const std::string&, uint64_t, uint64_t, Access) const {}

Pages::Pages(const char* call, const Place& place, uint64_t size_bytes, const MemoryFile* file)
    : Memory(place.heap, size_bytes),
      card_(place.card),
      generation_(card_->generation()),
      is_protected_(place.is_protected),
      page_bytes_(system_page_bytes()),
      total_bytes_(with_guards(size_bytes, page_bytes_)),
      room_(call, place, size_bytes, data_bytes()),
      protection_(PROT_NONE) {
  void* const base =
      mmap(nullptr, total_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) refuse_memory(call, size_bytes);
  base_ = static_cast<std::byte*>(base);
  address_ = base_ + page_bytes_;
  if (file == nullptr || data_bytes() == 0) return;
  void* const data =
      mmap(address_, data_bytes(), PROT_NONE, MAP_SHARED | MAP_FIXED, file->descriptor(), 0);
  if (data != MAP_FAILED) return;
  munmap(base_, total_bytes_);
  refuse_memory(call, size_bytes);
}

std::shared_ptr<Pages> Pages::make(const char* call, const Place& place, uint64_t size_bytes,
                                   const MemoryFile* file) {
  auto pages = std::make_shared<Pages>(call, place, size_bytes, file);
  place.card->add(*pages);
  return pages;
}

std::shared_ptr<Pages> Pages::allocate(const Place& place, uint64_t size_bytes) {
  std::shared_ptr<Pages> pages = make("allocate", place, size_bytes, nullptr);
  pages->write_canary();
  return pages;
}

std::shared_ptr<Pages> Pages::share(const Place& place, uint64_t size_bytes,
                                    std::unique_ptr<MemoryFile> file) {
  std::shared_ptr<Pages> pages = make("allocate", place, size_bytes, file.get());
  pages->file_ = std::move(file);
  pages->write_canary();
  return pages;
}

std::shared_ptr<Pages> Pages::take(const Place& place, uint64_t size_bytes,
                                   const MemoryFile& file) {
  return make("import_buffer", place, size_bytes, &file);
}

void Pages::write_canary() {
  open(0, 0, Access::kWrite);
  std::fill_n(address_ + size_bytes_, slack_bytes(), kCanary);
  close(Access::kWrite);
}

Pages::~Pages() {
  discard();
  const std::lock_guard lock(mutex_);
  unmap();  // This also unmaps memory that the host mapped and then freed.
}

// Opens all of the memory, even if the use is a part of it.
void Pages::open(uint64_t, uint64_t, Access access) {
  const std::lock_guard lock(mutex_);
  if (is_discarded_ && card_->generation() != generation_) {
    throw StatusError(BP_DEVICE_LOST, "the memory ended when its device was reset");
  }
  if (is_discarded_) throw StatusError(BP_INVALID_ARGUMENT, "the memory was freed before the work");
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
  protect();  // If it fails, the memory stays open, and only a check is lost.
}

void Pages::discard() {
  const std::lock_guard lock(mutex_);
  if (is_discarded_) return;
  is_discarded_ = true;
  card_->remove(*this);  // Other memory may get the addresses after this.
  room_.end();
  if (readers_ + writers_ == 0) unmap();
}

Memory::Damage Pages::damage() {
  Damage damage;
  if (slack_bytes() == 0) return damage;
  try {
    open(0, 0, Access::kRead);
  } catch (const StatusError&) {
    return damage;  // The memory has ended, or never began.
  }
  for (uint64_t byte = data_bytes(); byte-- > size_bytes_;) {
    if (address_[byte] == kCanary) continue;
    ++damage.count;
    damage.first_byte = byte;
  }
  close(Access::kRead);
  return damage;
}

// The caller holds the mutex.
bool Pages::protect() {
  int wanted = PROT_READ | PROT_WRITE;
  if (is_protected_ && writers_ == 0) wanted = readers_ > 0 ? PROT_READ : PROT_NONE;
  if (wanted == protection_ || data_bytes() == 0) return true;
  if (mprotect(address_, data_bytes(), wanted) != 0) return false;
  protection_ = wanted;
  return true;
}

// The caller holds the mutex.
void Pages::unmap() {
  if (!is_mapped_) return;
  is_mapped_ = false;
  munmap(base_, total_bytes_);
}

}  // namespace bp::sim
