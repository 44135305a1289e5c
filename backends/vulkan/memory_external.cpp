// Buffers over memory that the host knows by its address.
#include <cstdint>
#include <memory>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/memory.hpp"

namespace bp::vulkan {

std::unique_ptr<Buffer> MemoryTraits::wrap(Device& d, uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) {  // No byte of it is of anybody.
    auto nothing = std::make_shared<Memory>(d.card().engine()->context, 0, 0, 1, "wrap_address");
    return std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(nothing), 0, 0);
  }
  std::shared_ptr<Memory> memory = d.card().find(address);
  if (memory == nullptr) refuse_unknown_address(address);
  const uint64_t first_byte = address - memory->address();
  check_wrapped(first_byte, size_bytes, memory->size_bytes());
  return std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(memory), first_byte,
                                  size_bytes);
}

}  // namespace bp::vulkan
