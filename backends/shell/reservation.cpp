#include "backplane/shell/reservation.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

int protection(bp_access access) {
  if (access == BP_ACCESS_READ) return PROT_READ;
  return access == BP_ACCESS_READ_WRITE ? PROT_READ | PROT_WRITE : PROT_NONE;
}

[[noreturn]] void refuse_by_system(const char* call, uint64_t size_bytes) {
  throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": the system refuses " +
                                          std::to_string(size_bytes) +
                                          " bytes of addresses: " + std::strerror(errno));
}

}  // namespace

Reservation::Reservation(const char* call, uint64_t size_bytes) : size_bytes_(size_bytes) {
  void* const address = mmap(nullptr, size_bytes, PROT_NONE, kReserve, -1, 0);
  if (address == MAP_FAILED) refuse_by_system(call, size_bytes);
  address_ = static_cast<std::byte*>(address);
}

Reservation::~Reservation() { munmap(address_, size_bytes_); }

void Reservation::map(const char* call, uint64_t offset, uint64_t size_bytes,
                      const std::shared_ptr<const PhysicalMemory>& memory, uint64_t memory_offset) {
  const std::lock_guard lock(mutex_);
  const auto next = parts_.upper_bound(offset);
  const bool meets_next = next != parts_.end() && next->first - offset < size_bytes;
  const bool meets_before = next != parts_.begin() &&
                            offset - std::prev(next)->first < std::prev(next)->second.size_bytes;
  if (meets_next || meets_before) {
    const uint64_t taken = meets_before ? offset : next->first;
    throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": byte " + std::to_string(taken) +
                                               " of the range is mapped already");
  }
  // The step that may fail comes first, so that nothing is half done after a failure.
  const auto part = parts_.emplace(offset, Part{size_bytes, BP_ACCESS_NONE, memory}).first;
  void* const address = mmap(address_ + offset, size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                             memory->file.descriptor(), static_cast<off_t>(memory_offset));
  if (address != MAP_FAILED) return;
  parts_.erase(part);
  refuse_by_system(call, size_bytes);
}

void Reservation::set_access(const char* call, uint64_t offset, uint64_t size_bytes,
                             bp_access access) {
  const std::lock_guard lock(mutex_);
  require_mapped(call, offset, size_bytes);
  const auto begin = split(offset), end = split(offset + size_bytes);
  if (mprotect(address_ + offset, size_bytes, protection(access)) != 0) {
    refuse_by_system(call, size_bytes);
  }
  for (auto part = begin; part != end; ++part) part->second.access = access;
}

void Reservation::unmap(const char* call, uint64_t offset, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  require_mapped(call, offset, size_bytes);
  const auto begin = split(offset), end = split(offset + size_bytes);
  if (mmap(address_ + offset, size_bytes, PROT_NONE, kReserve | MAP_FIXED, -1, 0) == MAP_FAILED) {
    refuse_by_system(call, size_bytes);
  }
  parts_.erase(begin, end);
}

void Reservation::check(const std::string& what, uint64_t offset, uint64_t size_bytes,
                        bp_access access) const {
  const std::lock_guard lock(mutex_);
  const uint64_t end = mapped_end(offset, offset + size_bytes, access);
  if (end == offset + size_bytes) return;
  require_mapped(what, offset, size_bytes);
  throw StatusError(BP_INVALID_ARGUMENT,
                    what + ": byte " + std::to_string(end) + " of the range " +
                        (access == BP_ACCESS_READ ? "may not be read" : "may not be written") +
                        ": see set_access");
}

uint64_t Reservation::first_mapped() const {
  const std::lock_guard lock(mutex_);
  return parts_.empty() ? size_bytes_ : parts_.begin()->first;
}

// Returns the end of the bytes from `offset` on that are mapped with this access, at most `end`.
uint64_t Reservation::mapped_end(uint64_t offset, uint64_t end, bp_access access) const {
  auto part = parts_.upper_bound(offset);
  if (part != parts_.begin()) --part;
  for (; offset < end && part != parts_.end(); ++part) {
    const auto& [begin, what] = *part;
    if (begin > offset || begin + what.size_bytes <= offset || what.access < access) break;
    offset = begin + what.size_bytes;
  }
  return offset < end ? offset : end;
}

void Reservation::require_mapped(const std::string& what, uint64_t offset,
                                 uint64_t size_bytes) const {
  const uint64_t end = mapped_end(offset, offset + size_bytes, BP_ACCESS_NONE);
  if (end == offset + size_bytes) return;
  throw StatusError(BP_INVALID_ARGUMENT,
                    what + ": byte " + std::to_string(end) + " of the range is not mapped");
}

// Splits the part that crosses `offset`, if any. Returns the first part at or after `offset`.
Reservation::Parts::iterator Reservation::split(uint64_t offset) {
  const auto next = parts_.lower_bound(offset);
  if (next == parts_.begin()) return next;
  auto& [begin, before] = *std::prev(next);
  if (begin + before.size_bytes <= offset) return next;
  Part rest = before;
  rest.size_bytes = begin + before.size_bytes - offset;
  const auto added = parts_.emplace_hint(next, offset, std::move(rest));
  before.size_bytes = offset - begin;
  return added;
}

}  // namespace bp
