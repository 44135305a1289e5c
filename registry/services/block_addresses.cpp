// Gives addresses to blocks. An address is one of the device, or lies in a range that is reserved
// in this process and stays empty.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {
namespace {

// The gap after a segment, so that the address behind its last byte is not in the next segment.
constexpr uint64_t kGap = 4096;

// Reserves addresses that nothing else in the process uses. With MAP_NORESERVE they use no memory.
bp_status reserve(uint64_t size_bytes, uint64_t& out_address) {
  void* const range = mmap(nullptr, size_bytes + kGap, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    return fail(BP_OUT_OF_MEMORY, "block.address: the system refuses " +
                                      std::to_string(size_bytes) +
                                      " bytes of addresses: " + std::strerror(errno));
  }
  out_address = reinterpret_cast<uintptr_t>(range);
  return BP_OK;
}

void give_back(uint64_t address, uint64_t size_bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is that of the reservation.
  munmap(reinterpret_cast<void*>(address), size_bytes + kGap);
}

}  // namespace

Segment::~Segment() {
  if (has_reservation) give_back(address, size_bytes);
}

bp_status Cache::address_of_segment(Segment& segment) {
  {
    const std::lock_guard lock(mutex_);
    if (segment.address != 0) return BP_OK;
  }
  uint64_t address = 0;
  const bp_allocator_ops& allocator = *target_.allocator;
  bp_status status = allocator.address(allocator.self, segment.buffer, &address);
  const bool has_own = status == BP_OK;
  if (has_own) address += segment.begin_byte;
  if (status == BP_UNSUPPORTED) status = reserve(segment.size_bytes, address);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (segment.address != 0) {  // Another thread has set it first.
    if (!has_own) give_back(address, segment.size_bytes);
    return BP_OK;
  }
  segment.address = address;
  segment.has_reservation = !has_own;
  return BP_OK;
}

bp_status Cache::address(bp_block* handle, uint64_t* out_address) {
  auto& block = *reinterpret_cast<Block*>(handle);
  Cache& cache = *block.cache;
  if (cache.is_of_parent()) return backend_unloaded("block.address");
  {
    const std::lock_guard lock(cache.mutex_);
    if (!block.is_live) return was_freed("address");
    if (block.segment == nullptr) {
      *out_address = 0;
      return BP_OK;
    }
    if (cache.is_released_) return backend_unloaded("block.address");
    if (block.segment->is_lost) {
      return fail(BP_DEVICE_LOST, "block.address: a reset of the device has ended the memory");
    }
  }
  if (const bp_status status = cache.address_of_segment(*block.segment); status != BP_OK) {
    return status;
  }
  const std::lock_guard lock(cache.mutex_);
  const uint64_t address = address_of(block);
  cache.addressed_[address] = &block;
  block.has_address = true;
  *out_address = address;
  return BP_OK;
}

bp_status Cache::find(uint64_t address, bp_block** out_block, uint64_t* out_byte_offset) const {
  const std::lock_guard lock(mutex_);
  const auto next = addressed_.upper_bound(address);
  if (next != addressed_.begin()) {
    const auto& [begin, block] = *std::prev(next);
    if (address - begin < block->face.ref.size_bytes) {
      *out_block = &block->face;
      *out_byte_offset = address - begin;
      return BP_OK;
    }
  }
  return fail(BP_NOT_FOUND, std::string(target_.name) + ": address " + std::to_string(address) +
                                " lies in no block whose address bp_block_address() has given");
}

uint64_t Cache::address_of(const Block& block) {
  return block.segment->address + block.face.ref.byte_offset - block.segment->begin_byte;
}

void Cache::forget_address_locked(Block& block) {
  if (!block.has_address) return;
  // A wrapped block may have the address of another one.
  const auto found = addressed_.find(address_of(block));
  if (found != addressed_.end() && found->second == &block) addressed_.erase(found);
  block.has_address = false;
}

}  // namespace bp::services
