#include "backends/sim/virtual_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/allocation.hpp"

namespace bp::sim {

// ---- Ranges -------------------------------------------------------------------------------------

RangeMemory::RangeMemory(const Place& place, uint64_t size_bytes)
    : Memory(place.heap, size_bytes),
      card_(place.card),
      generation_(card_->generation()),
      is_protected_(place.is_protected),
      reservation_(std::make_unique<Reservation>("reserve", size_bytes)) {
  address_ = reservation_->address();
}

RangeMemory::~RangeMemory() { discard(); }

void RangeMemory::check(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
                        Access access) const {
  const std::lock_guard lock(mutex_);
  check_locked(what, byte_offset, size_bytes, access);
}

// Checks the access again, because it may have been removed since the work was submitted.
void RangeMemory::open(uint64_t byte_offset, uint64_t size_bytes, Access access) {
  const std::lock_guard lock(mutex_);
  check_locked("the work", byte_offset, size_bytes, access);
  const uint64_t page = system_page_bytes();
  const uint64_t begin = byte_offset / page * page;
  const uint64_t end = (byte_offset + size_bytes + page - 1) / page * page;
  const bool is_written = access == Access::kWrite || writers_ > 0;
  set_protection(begin, end, is_written ? PROT_READ | PROT_WRITE : PROT_READ);
  ++(access == Access::kWrite ? writers_ : readers_);
}

void RangeMemory::close(Access access) {
  const std::lock_guard lock(mutex_);
  --(access == Access::kWrite ? writers_ : readers_);
  shut();
}

void RangeMemory::discard() {
  const std::lock_guard lock(mutex_);
  if (reservation_ == nullptr) return;
  card_->remove(*this);  // Other memory may get the addresses after this.
  reservation_.reset();
}

void RangeMemory::map(const char* call, uint64_t byte_offset, uint64_t size_bytes,
                      const std::shared_ptr<const PhysicalMemory>& memory, uint64_t memory_offset) {
  const std::lock_guard lock(mutex_);
  require_alive();
  reservation_->map(call, byte_offset, size_bytes, memory, memory_offset);
}

// The reservation opens the range for access. The range is closed again, because no work needs it
// yet.
void RangeMemory::set_access(const char* call, uint64_t byte_offset, uint64_t size_bytes,
                             bp_access access) {
  const std::lock_guard lock(mutex_);
  require_alive();
  reservation_->set_access(call, byte_offset, size_bytes, access);
  open_begin_ = open_end_ == 0 ? byte_offset : std::min(open_begin_, byte_offset);
  open_end_ = std::max(open_end_, byte_offset + size_bytes);
  shut();
}

void RangeMemory::unmap(const char* call, uint64_t byte_offset, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  require_alive();
  reservation_->unmap(call, byte_offset, size_bytes);
}

// A range that has ended has no mapped part.
uint64_t RangeMemory::first_mapped() const {
  const std::lock_guard lock(mutex_);
  return reservation_ == nullptr ? size_bytes_ : reservation_->first_mapped();
}

// The caller holds the mutex.
void RangeMemory::check_locked(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
                               Access access) const {
  require_alive();
  reservation_->check(what, byte_offset, size_bytes,
                      access == Access::kWrite ? BP_ACCESS_READ_WRITE : BP_ACCESS_READ);
}

// The caller holds the mutex.
void RangeMemory::require_alive() const {
  if (reservation_ != nullptr) return;
  if (card_->generation() != generation_) {
    refuse(BP_DEVICE_LOST, "the range ended when its device was reset");
  }
  refuse(BP_INVALID_ARGUMENT, "the range was released before the work");
}

// The caller holds the mutex.
void RangeMemory::set_protection(uint64_t begin, uint64_t end, int protection) {
  if (!is_protected_ || begin == end) return;
  if (mprotect(address_ + begin, end - begin, protection) != 0) {
    refuse(BP_OUT_OF_MEMORY, "the system could not change the protection of pages");
  }
  open_begin_ = open_end_ == 0 ? begin : std::min(open_begin_, begin);
  open_end_ = std::max(open_end_, end);
}

// Closes the open pages if no work uses them. The caller holds the mutex.
void RangeMemory::shut() {
  if (!is_protected_ || readers_ + writers_ > 0 || reservation_ == nullptr) return;
  // If it fails, the memory stays open, and only a check is lost.
  static_cast<void>(mprotect(address_ + open_begin_, open_end_ - open_begin_, PROT_NONE));
  open_begin_ = open_end_ = 0;
}

// ---- The table ----------------------------------------------------------------------------------

namespace {

struct Ours {
  using Range = RangeMemory;

  static const bp_host& host(void* self) { return *instance(self).host; }

  static void check_device(void* self, bp_device* handle, const char* call) {
    static_cast<void>(device_of(instance(self), handle, call));
  }
  static void check_heap(void* self, bp_device* handle, uint64_t heap_index, const char* call) {
    check_heap_index(heap_index, device_of(instance(self), handle, call).heap_count(), call);
  }
  static void check_reach(void*, bp_buffer* range, bp_device* handle) {
    if (reinterpret_cast<bp_device*>(buffer_or_null(range)->device) == handle) return;
    refuse(BP_UNSUPPORTED,
           "set_access: device_list has another device than the one that the range was reserved "
           "for; devices reach each other by copy_peer() alone");
  }
  static void check_range(void*, bp_buffer* range, const char* call) {
    static_cast<void>(buffer_of(range, call, "range"));
  }
  static bool is_dead_range(void*, bp_buffer* range) { return is_dead(*buffer_or_null(range)); }
  static void check_memory(void*, MemoryOwner* memory, const char* call) {
    const auto* const ours = static_cast<PhysicalHandle*>(memory);
    bp::require_alive(*ours->device, ours->generation, call, "memory");
  }

  // Reserved addresses belong to no heap, so the first heap stands for all of them.
  static bp_buffer* add_range(void* self, bp_device* handle, uint64_t size_bytes) {
    Device& d = device_of(instance(self), handle, "reserve");
    const auto memory = std::make_shared<RangeMemory>(d.place(0), size_bytes);
    d.card().add(*memory);
    return lend(std::make_unique<Buffer>(d, BufferKind::kRange, memory), "reserve");
  }
  static RangeMemory* range(void*, bp_buffer* handle) {
    const Buffer* const b = buffer_or_null(handle);
    if (b == nullptr || b->kind != BufferKind::kRange) return nullptr;
    return static_cast<RangeMemory*>(b->memory.get());
  }
  static void remove_range(void*, bp_buffer* handle) {
    take_back(*buffer_or_null(handle))->memory->discard();
  }

  static MemoryOwner* add_memory(void* self, bp_device* handle, uint64_t heap_index,
                                 uint64_t size_bytes) {
    Device& d = device_of(instance(self), handle, "create");
    d.allocations().count();
    auto owner = std::make_unique<PhysicalHandle>();
    owner->device = &d;
    owner->generation = d.generation();
    owner->room = std::make_shared<Room>("create", d.place(heap_index), size_bytes, size_bytes);
    auto memory = std::make_shared<PhysicalMemory>("create", "backplane.sim.memory", size_bytes);
    memory->room = owner->room;
    owner->memory = std::move(memory);
    d.add(owner.get());
    return owner.release();
  }
  static void remove_memory(void*, MemoryOwner* memory) {
    auto* const ours = static_cast<PhysicalHandle*>(memory);
    ours->device->remove(ours);
    ours->magic = 0;
    delete ours;
  }
};

}  // namespace

constinit const bp_virtual_memory_ops kVirtualMemory = VirtualMemory<Ours>::table();

}  // namespace bp::sim
