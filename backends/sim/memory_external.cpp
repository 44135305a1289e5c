// Memory that the host or another process owns, and memory that another process gets: wrapped
// addresses, registered host memory, and buffers that travel as a descriptor.
#include <atomic>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/memory_file.hpp"
#include "backplane/shell/memory_file_kind.hpp"

namespace bp::sim {
namespace {

// The host's own memory, which is never closed to the host.
class HostMemory final : public Memory {
 public:
  HostMemory(size_t heap, std::byte* address, uint64_t size_bytes) : Memory(heap, size_bytes) {
    address_ = address;
  }

  void open(uint64_t, uint64_t, Access) override {
    if (has_ended_) refuse(BP_INVALID_ARGUMENT, "the host took its memory back before the work");
  }
  void close(Access) override {}
  void discard() override { has_ended_ = true; }

 private:
  std::atomic<bool> has_ended_ = false;
};

// Returns the name of the files that hold memory of this heap.
std::string file_kind(const Device& d, size_t heap) {
  return "backplane.sim." + std::to_string(d.index()) + ".heap" + std::to_string(heap);
}

// Returns the first heap that the host can access.
size_t visible_heap(const Device& d) {
  for (size_t heap = 0; heap < d.heap_count(); ++heap) {
    if ((d.heap(heap).flags & BP_HEAP_HOST_VISIBLE) != 0) return heap;
  }
  refuse(BP_UNSUPPORTED, "register_host: no heap is host_visible");
}

}  // namespace

std::shared_ptr<Memory> make_shared_memory(const Device& d, size_t heap, uint64_t size_bytes) {
  auto file = std::make_unique<MemoryFile>("allocate", file_kind(d, heap), size_bytes);
  return Pages::share(d.place(heap), size_bytes, std::move(file));
}

std::unique_ptr<Buffer> MemoryTraits::wrap(Device& d, uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) {  // Nobody owns 0 bytes.
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
    auto nothing = std::make_shared<HostMemory>(0, reinterpret_cast<std::byte*>(address), 0);
    return std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(nothing));
  }
  std::shared_ptr<Memory> memory = d.memory_at(address);
  if (memory == nullptr) refuse_unknown_address(address);
  const uint64_t first_byte = address - reinterpret_cast<uintptr_t>(memory->address());
  check_wrapped(first_byte, size_bytes, memory->size_bytes());
  return std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(memory), first_byte,
                                  size_bytes);
}

std::unique_ptr<Buffer> MemoryTraits::register_host(Device& d, void* memory, uint64_t size_bytes) {
  auto lent =
      std::make_shared<HostMemory>(visible_heap(d), static_cast<std::byte*>(memory), size_bytes);
  return std::make_unique<Buffer>(d, BufferKind::kRegistered, std::move(lent));
}

std::unique_ptr<Buffer> MemoryTraits::import_buffer(Device& d, const bp_external_handle& external) {
  // The name of the file says which heap the memory is from. If no heap fits, heap 0 refuses the
  // file.
  size_t heap = 0;
  for (size_t k = 0; k < d.heap_count(); ++k) {
    if (is_memory_file(file_kind(d, k), external.size_bytes, external.fd)) heap = k;
  }
  // The mapping keeps the memory alive, so the descriptor is closed after this function.
  const MemoryFile file("import_buffer", file_kind(d, heap), external.size_bytes, external.fd);
  auto b = std::make_unique<Buffer>(d, BufferKind::kAllocated,
                                    Pages::take(d.place(heap), external.size_bytes, file));
  b->is_imported = true;
  return b;
}

}  // namespace bp::sim
