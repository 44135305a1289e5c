#include "backends/vulkan/lane.hpp"

#include "backends/vulkan/memory.hpp"

namespace bp::vulkan {

// Waits for the device, which is acceptable because only tests order this fault.
void Lane::corrupt(std::span<const AddressRange> ranges) {
  const auto written = std::find_if(ranges.rbegin(), ranges.rend(), [](const AddressRange& range) {
    return range.is_written && range.begin < range.end;
  });
  if (written == ranges.rend()) return;
  const uint64_t address = written->begin + (written->end - written->begin) / 2;
  const std::shared_ptr<Memory> memory = card_->find(address);
  if (memory == nullptr) return;
  const AddressRange byte[] = {{address, address + 1, true}};
  const Slice before = engine_->readbacks.take(1, "corruption");
  const Slice after = engine_->uploads.take(1, "corruption");
  const uint64_t offset = memory->first_byte() + (address - memory->address());
  Ticket ticket = recorder().record([&](Recording& recording) {
    recording.order(byte);
    recording.copy(before.memory->buffer(), before.offset_in_buffer(), memory->buffer(), offset, 1);
  });
  recorder().wait(ticket, UINT64_MAX);
  *after.pointer = *before.pointer ^ std::byte{0x55};
  ticket = recorder().record([&](Recording& recording) {
    recording.order(byte);
    recording.copy(memory->buffer(), offset, after.memory->buffer(), after.offset_in_buffer(), 1);
  });
  recorder().wait(ticket, UINT64_MAX);
  advance(ticket);
}

}  // namespace bp::vulkan
