// Memory that the host or another process owns, and memory that another process gets: wrapped
// addresses, registered host memory, and buffers that travel as a descriptor.
#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"

namespace bp::cpu {
namespace {

// The name of the files behind exported descriptors.
constexpr const char* kFileKind = "backplane.cpu.buffer";

}  // namespace

void allocate_shared(Buffer& buffer) {
  const uint64_t size_bytes = buffer.size_bytes;
  buffer.file = std::make_unique<MemoryFile>("allocate", kFileKind, size_bytes);
  buffer.mapping = std::make_unique<Mapping>("allocate", *buffer.file, size_bytes);
  buffer.address = buffer.mapping->address();
}

std::unique_ptr<Buffer> MemoryTraits::wrap(Device& d, uint64_t address, uint64_t size_bytes) {
  auto b = std::make_unique<Buffer>(d, size_bytes);
  b->address = reinterpret_cast<std::byte*>(address);
  b->is_wrapped = true;
  return b;
}

std::unique_ptr<Buffer> MemoryTraits::register_host(Device& d, void* memory, uint64_t size_bytes) {
  auto b = std::make_unique<Buffer>(d, size_bytes);
  b->address = static_cast<std::byte*>(memory);
  b->is_registered = true;
  return b;
}

std::unique_ptr<Buffer> MemoryTraits::import_buffer(Device& d, const bp_external_handle& external) {
  // The mapping keeps the memory alive, so the descriptor is closed after this function.
  const MemoryFile file("import_buffer", kFileKind, external.size_bytes, external.fd);
  auto b = std::make_unique<Buffer>(d, external.size_bytes);
  b->mapping = std::make_unique<Mapping>("import_buffer", file, external.size_bytes);
  b->address = b->mapping->address();
  return b;
}

}  // namespace bp::cpu
