#include "backends/vulkan/device.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/vulkan/memory.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/properties.hpp"

namespace bp::vulkan {
namespace {

constexpr int32_t kDlpackVulkan = 7;  // kDLVulkan.

// A driver that runs on the host's processors shares its memory, as an integrated device does. It
// is no device of class host: hosts would take it for the one that stands in for others.
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
  properties_ = make_properties(
      card_->physical().name.c_str(), class_of(physical.type), heaps_,
      physical.has_f64 ? std::span<const bp_dtype>(kDeviceDtypes) : kDeviceDtypesWithoutF64);
  std::ranges::copy(physical.uuid, properties_.uuid);
  properties_.subgroup_size = physical.subgroup_size;
  properties_.dlpack_device_type = kDlpackVulkan;
  properties_.dlpack_device_id = static_cast<int32_t>(physical.index);
  card_->attach(this);
}

// Nothing runs any more: nothing uses what is deleted.
Device::~Device() {
  card_->detach(this);
  // A loss that is being told may have found this before.
  if (const std::shared_ptr<Engine> engine = card_->engine_if_open()) engine->recorder.drain();
  for (Event* const event : events_) delete event;
  for (Stream* const stream : streams_) delete stream;
  for (Buffer* const buffer : buffers_) delete buffer;
}

// Tensors may begin at every byte: shaders take addresses, and their own size alone is asked for.
void Device::set_heaps() {
  const Physical& physical = card_->physical();
  for (const PhysicalHeap& heap : physical.heaps) {
    heaps_.push_back(make_heap(heap.size_bytes, heap.flags));
    heaps_.back().max_allocation_bytes = std::min(heap.size_bytes, physical.max_allocation_bytes);
  }
}

const bp_device_properties& Device::properties() {
  // The one member that changes; another thread may lend the properties at this moment.
  std::atomic_ref<uint64_t>(properties_.generation).store(generation());
  return properties_;
}

bool Device::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  for (const std::shared_ptr<Queue>& queue : live_queues()) {
    if (!queue->wait(deadline.left_ns())) return false;
  }
  const std::shared_ptr<Engine> engine = card_->engine_if_open();
  return engine == nullptr || engine->recorder.wait(engine->recorder.latest(), deadline.left_ns());
}

// Called with the mutex.
Stream* Device::make_stream() {
  auto stream = std::make_unique<Stream>(*this);
  stream->lane = std::make_shared<Lane>(card_, card_->engine());
  stream->queue = std::make_shared<Queue>(*instance_.host, instance_.executor, true);
  streams_.insert(stream.get());
  return stream.release();
}

Stream* Device::default_stream() {
  const std::lock_guard lock(mutex_);
  // After a reset the old one is dead, as all handles are.
  if (default_stream_ == nullptr || default_stream_->generation != generation()) {
    default_stream_ = make_stream();
  }
  return default_stream_;
}

Stream* Device::create_stream() {
  const std::lock_guard lock(mutex_);
  return make_stream();
}

bool Device::is_default_stream(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return stream == default_stream_;
}

void Device::destroy_stream(Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(closing_, [](const std::weak_ptr<Queue>& queue) { return queue.expired(); });
    if (!stream->queue->is_idle()) closing_.push_back(stream->queue);
    streams_.erase(stream);
  }
  stream->magic = 0;
  delete stream;
}

void Device::add(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  if (buffer->kind == BufferKind::kAllocated) {
    places_.add(buffer->address(), buffer->size_bytes, buffer);
  }
  buffers_.insert(buffer);
}

void Device::remove(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
  places_.remove(buffer->address(), buffer);
}

bool Device::find(uint64_t address, bp_address_info& info) {
  const std::lock_guard lock(mutex_);
  Buffer* const found = places_.find(address);
  if (found == nullptr) return false;
  info.device = reinterpret_cast<bp_device*>(this);
  info.buffer = reinterpret_cast<bp_buffer*>(found);
  info.byte_offset = address - found->address();
  info.size_bytes = found->size_bytes;
  return true;
}

void Device::add(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.insert(event);
}

void Device::remove(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

bool Device::is_in_use() const {
  const std::lock_guard lock(mutex_);
  return !streams_.empty() || !buffers_.empty() || !events_.empty();
}

std::vector<std::shared_ptr<Queue>> Device::live_queues() const {
  std::vector<std::shared_ptr<Queue>> queues;
  const std::lock_guard lock(mutex_);
  for (const Stream* stream : streams_) queues.push_back(stream->queue);
  for (const std::weak_ptr<Queue>& closing : closing_) {
    if (std::shared_ptr<Queue> queue = closing.lock()) queues.push_back(std::move(queue));
  }
  return queues;
}

void Device::end_work() {
  const Outcome loss{.status = BP_DEVICE_LOST,
                     .text = card_->physical().name + " is lost" + card_->loss()};
  for (const std::shared_ptr<Queue>& queue : live_queues()) queue->lose(loss);
  // Streams of other devices may wait for a signal of the host, which is refused from now on.
  std::vector<std::shared_ptr<Moment>> signals;
  {
    const std::lock_guard lock(mutex_);
    for (Event* const event : events_) {
      if ((event->flags & BP_EVENT_HOST_SIGNAL) != 0) signals.push_back(event->latest());
    }
  }
  for (const std::shared_ptr<Moment>& moment : signals) moment->submitted->complete(loss);
}

void Device::end_handles() {
  wait(UINT64_MAX);
  const std::lock_guard lock(mutex_);
  // Their addresses are free for other memory, also while the dead handles stay.
  places_ = {};
  for (Buffer* const buffer : buffers_) {
    if (buffer->kind == BufferKind::kAllocated) buffer->memory->discard();
  }
}

void Device::settle() const {
  const std::shared_ptr<Engine> engine = card_->engine_if_open();
  if (engine == nullptr) return;
  try {
    engine->recorder.wait(engine->recorder.latest(), UINT64_MAX);
  } catch (const StatusError&) {
    // The device is lost: nothing runs any more.
  }
}

void Device::abandon_work() {
  for (const std::shared_ptr<Queue>& queue : live_queues()) queue->abandon();
}

Device& any_device_of(const Instance& i, bp_device* handle, const char* call, const char* what) {
  for (const std::unique_ptr<Device>& device : i.cards) {
    if (reinterpret_cast<Device*>(handle) == device.get()) return *device;
  }
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": " + what + " is NULL or not one of this backend");
}

Device& device_of(const Instance& i, bp_device* handle, const char* call, const char* what) {
  Device& device = any_device_of(i, handle, call, what);
  if (device.is_lost()) {
    throw StatusError(BP_DEVICE_LOST, std::string(call) + ": the device is lost until it is reset" +
                                          device.card().loss());
  }
  return device;
}

}  // namespace bp::vulkan
