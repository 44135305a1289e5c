// Buffers over memory that the host knows by its address.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/memory.hpp"

namespace bp::vulkan {

bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "wrap_address");
    require(out_buffer, "wrap_address: out_buffer");
    if (address == 0 && size_bytes > 0) refuse(BP_INVALID_ARGUMENT, "wrap_address: address is 0");
    if (size_bytes > std::numeric_limits<uint64_t>::max() - address) {
      refuse(BP_INVALID_ARGUMENT, "wrap_address: " + std::to_string(size_bytes) +
                                      " bytes at address " + std::to_string(address) +
                                      " leave the address space");
    }
    if (size_bytes == 0) {  // No byte of it is of anybody.
      auto nothing = std::make_shared<Memory>(d.card().engine()->context, 0, 0, 1, "wrap_address");
      *out_buffer =
          lend(std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(nothing), 0, 0));
      return BP_OK;
    }
    std::shared_ptr<Memory> memory = d.card().find(address);
    if (memory == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "wrap_address: address " + std::to_string(address) +
                                      " lies in no memory of the device");
    }
    const uint64_t first_byte = address - memory->address();
    if (size_bytes > memory->size_bytes() - first_byte) {
      refuse(BP_INVALID_ARGUMENT, "wrap_address: " + std::to_string(size_bytes) +
                                      " bytes at byte " + std::to_string(first_byte) +
                                      " leave the memory at that address, which has " +
                                      std::to_string(memory->size_bytes()));
    }
    *out_buffer = lend(std::make_unique<Buffer>(d, BufferKind::kWrapped, std::move(memory),
                                                first_byte, size_bytes));
    return BP_OK;
  });
}

bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info) {
  return entry(self, [&](const Instance& i) -> bp_status {
    return find_address<Device>(i.cards, address, out_info);
  });
}

}  // namespace bp::vulkan
