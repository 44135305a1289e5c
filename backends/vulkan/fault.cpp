// The extension "bp.test.fault": failures that a test orders.
#include <algorithm>
#include <string>
#include <utility>

#include "backends/vulkan/entry.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/test_fault.h"

namespace bp::vulkan {
namespace {

bp_status fault_fail_next(void* self, bp_stream* handle, bp_test_fault_kind kind,
                          bp_status status) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "fail_next");
    if (kind > BP_TEST_FAULT_CORRUPTION) {
      refuse(BP_INVALID_ARGUMENT, "fail_next: kind is " + std::to_string(kind) +
                                      "; 0 and the BP_TEST_FAULT_* values are allowed");
    }
    const bool needs_failure = kind == BP_TEST_FAULT_SUBMISSION || kind == BP_TEST_FAULT_DATA;
    if (needs_failure == (status == BP_OK)) {
      refuse(BP_INVALID_ARGUMENT, "fail_next: status is " + std::to_string(status) +
                                      ", and BP_OK belongs to kind 0 and corruption alone");
    }
    s.lane->order({kind, status});
    return BP_OK;
  });
}

bp_status fault_lose_device(void* self, bp_device* handle) {
  return entry(self, [&](const Instance& i) {
    any_device_of(i, handle, "lose_device", "device").card().lose();
    return BP_OK;
  });
}

bp_status fault_fail_allocation(void* self, bp_device* handle, uint64_t index) {
  return entry(self, [&](const Instance& i) {
    device_of(i, handle, "fail_allocation").fail_allocation(index);
    return BP_OK;
  });
}

}  // namespace

// ---- What the lane does with it -----------------------------------------------------------------

void Lane::order(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  has_fault_.store(fault.kind != 0, std::memory_order_release);
}

Fault Lane::take_fault() {
  if (!has_fault_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  has_fault_.store(false, std::memory_order_release);
  return std::exchange(fault_, {});
}

void Lane::throw_ordered_failure(const Fault& fault) {
  const std::string text =
      "a failure that bp.test.fault ordered, with the status " + std::to_string(fault.status);
  if (fault.kind == BP_TEST_FAULT_DATA) throw DataFailure(fault.status, text);
  throw StatusError(fault.status, text);
}

// A test waits for it, so this may.
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

constinit const bp_test_fault_ops kFaults{
    .struct_size = sizeof(bp_test_fault_ops),
    .struct_type = BP_STRUCT_TEST_FAULT_OPS,
    .fail_next = fault_fail_next,
    .lose_device = fault_lose_device,
    .fail_allocation = fault_fail_allocation,
};

}  // namespace bp::vulkan
