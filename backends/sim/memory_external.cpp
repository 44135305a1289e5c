// Memory that the host or another process owns, and memory that another process gets: wrapped
// addresses, registered host memory, and buffers that travel as a descriptor.
#include <atomic>
#include <limits>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/first_size.hpp"
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

void check_type(bp_external_type type, const char* call) {
  if (type == BP_EXTERNAL_FD) return;
  refuse(BP_UNSUPPORTED, std::string(call) + ": type is " + std::to_string(type) +
                             "; BP_EXTERNAL_FD, a descriptor, is offered");
}

void check_addresses(uint64_t address, uint64_t size_bytes, const char* call) {
  if (address == 0 && size_bytes > 0) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": the address is 0");
  }
  if (size_bytes > std::numeric_limits<uint64_t>::max() - address) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + std::to_string(size_bytes) +
                                    " bytes at address " + std::to_string(address) +
                                    " leave the address space");
  }
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

bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "wrap_address");
    require(out_buffer, "wrap_address: out_buffer");
    check_addresses(address, size_bytes, "wrap_address");
    if (size_bytes == 0) {  // Nobody owns 0 bytes.
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
      auto nothing = std::make_shared<HostMemory>(0, reinterpret_cast<std::byte*>(address), 0);
      *out_buffer = lend(std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(nothing)),
                         "wrap_address");
      return BP_OK;
    }
    std::shared_ptr<Memory> memory = d.memory_at(address);
    if (memory == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "wrap_address: address " + std::to_string(address) +
                                      " lies in no memory of the device");
    }
    const uint64_t first_byte = address - reinterpret_cast<uintptr_t>(memory->address());
    if (size_bytes > memory->size_bytes() - first_byte) {
      refuse(BP_INVALID_ARGUMENT, "wrap_address: " + std::to_string(size_bytes) +
                                      " bytes at byte " + std::to_string(first_byte) +
                                      " leave the memory at that address, which has " +
                                      std::to_string(memory->size_bytes()));
    }
    *out_buffer = lend(std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(memory),
                                                first_byte, size_bytes),
                       "wrap_address");
    return BP_OK;
  });
}

bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info) {
  return entry(self, [&](const Instance& i) -> bp_status {
    return find_address<Device>(i.cards, address, out_info);
  });
}

bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "register_host");
    require(out_buffer, "register_host: out_buffer");
    check_addresses(reinterpret_cast<uintptr_t>(memory), size_bytes, "register_host");
    auto lent =
        std::make_shared<HostMemory>(visible_heap(d), static_cast<std::byte*>(memory), size_bytes);
    *out_buffer = lend(std::make_unique<Buffer>(d, BufferKind::kRegistered, std::move(lent)),
                       "register_host");
    return BP_OK;
  });
}

bp_status memory_unregister_host(void* self, bp_buffer* handle) {
  return entry(self, [&](const Instance&) {
    Buffer* const b = buffer_or_null(handle);
    if (b == nullptr || b->kind != BufferKind::kRegistered) {
      refuse(BP_INVALID_ARGUMENT, "unregister_host: buffer is not one that register_host() made");
    }
    b->memory->discard();
    end_handle(b);
    return BP_OK;
  });
}

bp_status memory_export_buffer(void* self, bp_buffer* handle, bp_external_type type,
                               bp_external_handle* out_handle) {
  return entry(self, [&](const Instance&) {
    const Buffer& b = buffer_of(handle, "export_buffer");
    if (b.kind != BufferKind::kAllocated || b.memory->file() == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "export_buffer: buffer is not one allocated with BP_MEMORY_EXPORT");
    }
    check_type(type, "export_buffer");
    check_offer(out_handle, kFirstSize<bp_external_handle>, "export_buffer: out_handle");
    bp_external_handle given{};
    given.type = BP_EXTERNAL_FD;
    given.fd = b.memory->file()->duplicate("export_buffer");
    given.size_bytes = b.size_bytes;
    write_offer(given, out_handle);
    return BP_OK;
  });
}

bp_status memory_import_buffer(void* self, bp_device* handle, const bp_external_handle* external,
                               bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "import_buffer");
    require(out_buffer, "import_buffer: out_buffer");
    require(external, "import_buffer: handle");
    const auto given = read_desc(external, kFirstSize<bp_external_handle>,
                                 BP_STRUCT_EXTERNAL_HANDLE, "import_buffer", "handle");
    check_type(given.type, "import_buffer");
    // The name of the file says which heap the memory is from. If no heap fits, heap 0 refuses the
    // file.
    size_t heap = 0;
    for (size_t k = 0; k < d.heap_count(); ++k) {
      if (is_memory_file(file_kind(d, k), given.size_bytes, given.fd)) heap = k;
    }
    // The mapping keeps the memory alive, so the descriptor is closed after this block.
    const MemoryFile file("import_buffer", file_kind(d, heap), given.size_bytes, given.fd);
    *out_buffer = lend(std::make_unique<Buffer>(d, BufferKind::kAllocated,
                                                Pages::take(d.place(heap), given.size_bytes, file)),
                       "import_buffer");
    return BP_OK;
  });
}

}  // namespace bp::sim
