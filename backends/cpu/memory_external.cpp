// Memory that the host or another process owns, and memory that another process gets: wrapped
// addresses, registered host memory, and buffers that travel as a descriptor.
#include <limits>
#include <string>

#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cpu {
namespace {

// The name of the files behind exported descriptors.
constexpr const char* kFileKind = "backplane.cpu.buffer";

// Checks the arguments of the entries below that make a buffer, and returns the device.
Device& checked_arguments(const Instance& i, bp_device* handle, bp_buffer* const* out_buffer,
                          const char* call) {
  Device& d = device_of(i, handle, call);
  if (out_buffer == nullptr) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": out_buffer is NULL");
  }
  return d;
}

std::unique_ptr<Buffer> buffer_at(uint64_t address, uint64_t size_bytes, const char* call) {
  if (address == 0 && size_bytes > 0) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": the address is 0");
  }
  if (size_bytes > std::numeric_limits<uint64_t>::max() - address) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + std::to_string(size_bytes) +
                                    " bytes at address " + std::to_string(address) +
                                    " leave the address space");
  }
  auto b = std::make_unique<Buffer>();
  b->address = reinterpret_cast<std::byte*>(address);
  b->size_bytes = size_bytes;
  return b;
}

void check_type(bp_external_type type, const char* call) {
  if (type == BP_EXTERNAL_FD) return;
  refuse(BP_UNSUPPORTED, std::string(call) + ": type is " + std::to_string(type) +
                             "; BP_EXTERNAL_FD, a descriptor, is offered");
}

}  // namespace

void allocate_shared(Buffer& buffer, uint64_t size_bytes) {
  buffer.file = std::make_unique<MemoryFile>("allocate", kFileKind, size_bytes);
  buffer.mapping = std::make_unique<Mapping>("allocate", *buffer.file, size_bytes);
  buffer.address = buffer.mapping->address();
}

bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = checked_arguments(i, handle, out_buffer, "wrap_address");
    std::unique_ptr<Buffer> b = buffer_at(address, size_bytes, "wrap_address");
    b->is_wrapped = true;
    *out_buffer = lend(d, std::move(b), "wrap_address");
    return BP_OK;
  });
}

bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info) {
  return entry(self, [&](const Instance& i) -> bp_status {
    return find_address<Device>({&i.device, 1}, address, out_info);
  });
}

bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = checked_arguments(i, handle, out_buffer, "register_host");
    std::unique_ptr<Buffer> b =
        buffer_at(reinterpret_cast<uintptr_t>(memory), size_bytes, "register_host");
    b->is_registered = true;
    *out_buffer = lend(d, std::move(b), "register_host");
    return BP_OK;
  });
}

bp_status memory_unregister_host(void* self, bp_buffer* handle) {
  const Instance& i = instance(self);
  Buffer* const b = buffer(handle);
  if (b == nullptr || !b->is_registered) {
    return i.fail(BP_INVALID_ARGUMENT,
                  "unregister_host: buffer is not one that register_host() made");
  }
  take_back(b);
  release(b);
  return BP_OK;
}

bp_status memory_export_buffer(void* self, bp_buffer* handle, bp_external_type type,
                               bp_external_handle* out_handle) {
  return entry(self, [&](const Instance&) -> bp_status {
    const Buffer* const b = buffer(handle);
    if (b == nullptr || b->file == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "export_buffer: buffer is not one allocated with BP_MEMORY_EXPORT");
    }
    check_type(type, "export_buffer");
    check_offer(out_handle, kFirstSize<bp_external_handle>, "export_buffer: out_handle");
    bp_external_handle given{};
    given.type = BP_EXTERNAL_FD;
    given.fd = b->file->duplicate("export_buffer");
    given.size_bytes = b->size_bytes;
    write_offer(given, out_handle);
    return BP_OK;
  });
}

bp_status memory_import_buffer(void* self, bp_device* handle, const bp_external_handle* external,
                               bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = checked_arguments(i, handle, out_buffer, "import_buffer");
    require(external, "import_buffer: handle");
    const auto given = read_desc(external, kFirstSize<bp_external_handle>,
                                 BP_STRUCT_EXTERNAL_HANDLE, "import_buffer", "handle");
    check_type(given.type, "import_buffer");
    // The mapping keeps the memory alive, so the descriptor is closed after this block.
    const MemoryFile file("import_buffer", kFileKind, given.size_bytes, given.fd);
    auto b = std::make_unique<Buffer>();
    b->mapping = std::make_unique<Mapping>("import_buffer", file, given.size_bytes);
    b->address = b->mapping->address();
    b->size_bytes = given.size_bytes;
    *out_buffer = lend(d, std::move(b), "import_buffer");
    return BP_OK;
  });
}

}  // namespace bp::cpu
