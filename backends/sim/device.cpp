#include "backends/sim/device.hpp"

#include <algorithm>
#include <iterator>

#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backends/sim/virtual_memory.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/identity.hpp"
#include "backplane/shell/properties.hpp"

namespace bp::sim {
namespace {

constexpr int32_t kDlpackExtensionDevice = 12;  // kDLExtDev.

bp_heap make_heap(const Options& options, bp_heap_flags flags) {
  bp_heap heap = bp::make_heap(options.capacity_bytes, flags);
  heap.tensor_offset_alignment_bytes = options.offset_alignment_bytes;
  heap.suballocation_granularity_bytes =
      options.has_whole_buffers ? 0 : options.offset_alignment_bytes;
  return heap;
}

}  // namespace

Device::Device(Instance& instance, uint32_t index)
    : instance_(instance),
      index_(index),
      card_(card_in_slot(index)),
      clock_(index),
      name_("simulated accelerator " + std::to_string(index)),
      delays_(instance.options.delays) {
  properties_ = make_properties(name_.c_str(), BP_DEVICE_SIMULATED,
                                std::span(heaps_).first(set_heaps()), kDeviceDtypes);
  write_uuid("backplane.sim", name_, properties_.uuid);
  properties_.compute_unit_count = 1;
  properties_.subgroup_size = 1;
  if (options().has_addresses) {
    properties_.dlpack_device_type = kDlpackExtensionDevice;
    properties_.dlpack_device_id = static_cast<int32_t>(index);
  }
  card_->attach(this);
}

// The executor has stopped: nothing uses what is deleted.
Device::~Device() {
  card_->detach(this);
  for (Event* const event : events_) delete event;
  for (Stream* const stream : streams_) delete stream;
  for (Buffer* const buffer : buffers_) delete buffer;
  for (PhysicalHandle* const memory : memories_) delete memory;
}

size_t Device::set_heaps() {
  switch (options().heaps) {
    case HeapMode::kCoherent:
      heaps_[0] = make_heap(options(), BP_HEAP_DEVICE_LOCAL);
      heaps_[1] = make_heap(options(), BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT);
      return 2;
    case HeapMode::kNoncoherent:
      heaps_[0] = make_heap(options(), BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE);
      return 1;
    case HeapMode::kIntegrated:
      heaps_[0] =
          make_heap(options(), BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT);
      return 1;
  }
  return 0;
}

const bp_device_properties& Device::properties() {
  // The one member that changes; another thread may lend the properties at this moment.
  std::atomic_ref<uint64_t>(properties_.generation).store(generation());
  return properties_;
}

void Device::set_option(std::string_view key, std::string_view value) {
  DelayOptions delays = delays_.get();
  if (!set_delay_option(delays, key, value)) {
    throw StatusError(BP_NOT_FOUND,
                      "device.set_option: there is no option \"" + std::string(key) +
                          "\"; there are \"delay_us\", \"delay_probability\" and \"seed\"");
  }
  delays_.set(delays);
}

bool Device::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  for (const std::shared_ptr<Queue>& queue : live_queues()) {
    if (!queue->wait(deadline.left_ns())) return false;
  }
  return true;
}

// Called with the mutex.
Stream* Device::make_stream() {
  auto stream = std::make_unique<Stream>(*this);
  stream->queue = std::make_shared<Queue>(*instance_.host, instance_.executor, false);
  stream->lane = std::make_shared<Lane>(delays_, uint64_t{index_} << 32 | stream_count_++);
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

Stream* Device::wrap_stream(const void* native) {
  const std::lock_guard lock(mutex_);
  for (const Stream* const stream : streams_) {
    if (stream->queue.get() != native || stream->generation != generation()) continue;
    auto wrapper = std::make_unique<Stream>(*this);
    wrapper->queue = stream->queue;
    wrapper->lane = stream->lane;
    streams_.insert(wrapper.get());
    return wrapper.release();
  }
  return nullptr;
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

bool Device::add(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(buffer->address());
  const bool is_owner = buffer->kind != BufferKind::kWrapped;
  if (is_owner && !places_.add(address, buffer->size_bytes, buffer)) return false;
  try {
    buffers_.insert(buffer);
  } catch (...) {
    places_.remove(address, buffer);
    throw;
  }
  return true;
}

void Device::remove(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
  places_.remove(reinterpret_cast<uintptr_t>(buffer->address()), buffer);
}

bool Device::find(uint64_t address, bp_address_info& info) {
  const std::lock_guard lock(mutex_);
  Buffer* const found = places_.find(address);
  if (found == nullptr) return false;
  info.device = reinterpret_cast<bp_device*>(this);
  info.buffer = reinterpret_cast<bp_buffer*>(found);
  info.byte_offset = address - reinterpret_cast<uintptr_t>(found->address());
  info.size_bytes = found->size_bytes;
  return true;
}

std::shared_ptr<Memory> Device::memory_at(uint64_t address) {
  {
    const std::lock_guard lock(mutex_);
    const Buffer* const owner = places_.find(address);
    if (owner != nullptr) return owner->memory;
  }
  return card_->find(address);
}

void Device::add(PhysicalHandle* memory) {
  const std::lock_guard lock(mutex_);
  memories_.insert(memory);
}

void Device::remove(PhysicalHandle* memory) {
  const std::lock_guard lock(mutex_);
  memories_.erase(memory);
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
  return !streams_.empty() || !buffers_.empty() || !events_.empty() || !memories_.empty();
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
  const Outcome loss{.status = BP_DEVICE_LOST, .text = name_ + " is lost"};
  for (const std::shared_ptr<Queue>& queue : live_queues()) queue->lose(loss);
  // Streams of other devices may wait for a signal of the host, which is refused from now on.
  std::vector<std::shared_ptr<Point>> signals;
  {
    const std::lock_guard lock(mutex_);
    for (Event* const event : events_) {
      if ((event->flags & BP_EVENT_HOST_SIGNAL) != 0) signals.push_back(event->latest());
    }
  }
  for (const std::shared_ptr<Point>& point : signals) point->complete(loss);
}

void Device::end_handles() {
  wait(UINT64_MAX);
  const std::lock_guard lock(mutex_);
  // Their addresses are free for other memory, also while the dead handles stay.
  places_ = {};
  for (Buffer* const buffer : buffers_) {
    if (buffer->kind != BufferKind::kWrapped) buffer->memory->discard();
  }
  for (PhysicalHandle* const memory : memories_) memory->room->end();
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
    throw StatusError(BP_DEVICE_LOST, std::string(call) + ": the device is lost until it is reset");
  }
  return device;
}

}  // namespace bp::sim
