#include "backplane/shell/virtual_memory.hpp"

#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backplane/shell/allocation.hpp"

namespace bp::cpu {
namespace {

// What this backend adds to the table of virtual memory that the shell makes.
struct Ours {
  using Range = Reservation;

  static const bp_host& host(void* self) { return *instance(self).host; }

  static Device& checked_device(void* self, bp_device* handle, const char* call) {
    return device_of(instance(self), handle, call);
  }
  static void check_device(void* self, bp_device* handle, const char* call) {
    checked_device(self, handle, call);
  }
  static void check_heap(void* self, bp_device* handle, uint64_t heap_index, const char* call) {
    check_heap_index(heap_index, checked_device(self, handle, call).properties().heap_count, call);
  }
  static void check_reach(void*, bp_buffer*, bp_device*) {}   // There is one device.
  static void check_range(void*, bp_buffer*, const char*) {}  // The device is never lost.
  static void check_memory(void*, MemoryOwner*, const char*) {}

  static bp_buffer* add_range(void* self, bp_device* handle, uint64_t size_bytes) {
    auto range = std::make_unique<Reservation>("reserve", size_bytes);
    auto b = std::make_unique<Buffer>(checked_device(self, handle, "reserve"), range->size_bytes());
    b->address = range->address();
    b->reservation = std::move(range);
    return lend(std::move(b), "reserve");
  }
  static Reservation* range(void*, bp_buffer* handle) {
    const Buffer* const b = buffer(handle);
    return b == nullptr ? nullptr : b->reservation.get();
  }
  static void remove_range(void*, bp_buffer* handle) { take_back(*buffer(handle)); }

  static MemoryOwner* add_memory(void* self, bp_device* handle, uint64_t, uint64_t size_bytes) {
    Device& d = checked_device(self, handle, "create");
    check_size(d.heap(), size_bytes, "create");
    d.allocations().count();
    auto owner = std::make_unique<MemoryOwner>();
    owner->memory = std::make_shared<PhysicalMemory>("create", "backplane.cpu.memory", size_bytes);
    d.add(owner.get());
    return owner.release();
  }
  static void remove_memory(void* self, MemoryOwner* memory) {
    instance(self).device->remove(memory);
    memory->magic = 0;
    delete memory;
  }
};

}  // namespace

constinit const bp_virtual_memory_ops kVirtualMemory = VirtualMemory<Ours>::table();

}  // namespace bp::cpu
