#include "backends/vulkan/device.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/vulkan/memory.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/properties.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::vulkan {
namespace {

constexpr int32_t kDlpackVulkan = 7;  // kDLVulkan.

// Returns the class of a device. A driver that runs on the host's processors shares the host's
// memory, as an integrated device does. It does not get the class host, because hosts would use it
// as the fallback for other devices.
bp_device_class class_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return BP_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return BP_DEVICE_DISCRETE;
    default:
      return BP_DEVICE_ACCELERATOR;
  }
}

}  // namespace

Device::Device(Instance& instance, const Physical& physical)
    : instance_(instance),
      card_(card_of(physical, {.has_validation = instance.options.has_validation,
                               .has_barriers = instance.options.has_barriers,
                               .cache_folder = instance.options.cache_folder,
                               .log = {}})) {
  set_heaps();
  properties_ = make_properties(card_->physical().name.c_str(), class_of(physical.type), heaps_,
                                physical.has_f64 ? std::span<const bp_dtype>(kQuantizedDeviceDtypes)
                                                 : kQuantizedDeviceDtypesWithoutF64);
  std::ranges::copy(physical.uuid, properties_.uuid);
  properties_.subgroup_size = physical.subgroup_size;
  properties_.dlpack_device_type = kDlpackVulkan;
  properties_.dlpack_device_id = static_cast<int32_t>(physical.index);
  card_->attach(this);
}

// No work runs any more, so nothing uses what is deleted here.
Device::~Device() {
  leave_card();
  // Jobs of work on a lost device may still run.
  if (const std::shared_ptr<Engine> engine = card_->engine_if_open()) engine->recorder.drain();
  delete_all();
}

// Tensors may begin at any byte, because shaders take addresses and need only the alignment of an
// element.
void Device::set_heaps() {
  const Physical& physical = card_->physical();
  for (const PhysicalHeap& heap : physical.heaps) {
    heaps_.push_back(make_heap(heap.size_bytes, heap.flags, physical.non_coherent_atom_bytes));
    heaps_.back().max_allocation_bytes = std::min(heap.size_bytes, physical.max_allocation_bytes);
  }
}

bool Device::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  if (!streams_.wait(timeout_ns)) return false;
  const std::shared_ptr<Engine> engine = card_->engine_if_open();
  return engine == nullptr || engine->recorder.wait(engine->recorder.latest(), deadline.left_ns());
}

std::unique_ptr<Stream> Device::make_stream() {
  auto stream = std::make_unique<Stream>(*this);
  stream->lane = std::make_shared<Lane>(card_, card_->engine());
  stream->queue = std::make_shared<Queue>(*instance_.host, instance_.executor, true);
  return stream;
}

Stream* Device::default_stream() {
  return streams_.default_stream([this] { return make_stream(); });
}

Stream* Device::create_stream() { return streams_.add(make_stream()); }

void Device::renew_default_stream() {
  streams_.renew_default_stream([this] { return make_stream(); });
}

bool Device::add(Buffer* buffer) {
  return buffers_.add(buffer, buffer->address(), buffer->kind == BufferKind::kAllocated);
}

void Device::end_work() {
  const Outcome loss{.status = BP_DEVICE_LOST,
                     .text = card_->physical().name + " is lost" + card_->loss()};
  lose_work(streams_, events_, loss, [](Moment& moment) -> Point& { return *moment.submitted; });
  lose_semaphores(loss);
}

void Device::end_handles() {
  wait(UINT64_MAX);
  buffers_.forget_memory([](const Buffer& buffer) {
    if (buffer.kind == BufferKind::kAllocated) buffer.memory->discard();
  });
}

bool Device::settle(uint64_t timeout_ns) const {
  const std::shared_ptr<Engine> engine = card_->engine_if_open();
  if (engine == nullptr) return true;
  try {
    return engine->recorder.wait(engine->recorder.latest(), timeout_ns);
  } catch (const StatusError&) {
    return true;  // The device is lost, so no work runs any more.
  }
}

}  // namespace bp::vulkan
