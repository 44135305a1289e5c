#include "backends/sim/device.hpp"

#include <algorithm>
#include <iterator>

#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backends/sim/virtual_memory.hpp"
#include "backplane/shell/identity.hpp"
#include "backplane/shell/properties.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::sim {
namespace {

constexpr int32_t kDlpackExtensionDevice = 12;  // kDLExtDev.
constexpr uint64_t kLineBytes = 64;  // flush() and invalidate() move whole lines of this size.

bp_heap make_heap(const Options& options, bp_heap_flags flags) {
  bp_heap heap = bp::make_heap(options.capacity_bytes, flags, kLineBytes);
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
                                std::span(heaps_).first(set_heaps()), kQuantizedDeviceDtypes);
  write_uuid("backplane.sim", name_, properties_.uuid);
  properties_.compute_unit_count = 1;
  properties_.subgroup_size = 1;
  if (options().has_registration) {
    properties_.host_register_alignment_bytes = options().offset_alignment_bytes;
  }
  if (options().has_addresses) {
    properties_.dlpack_device_type = kDlpackExtensionDevice;
    properties_.dlpack_device_id = static_cast<int32_t>(index);
  }
  card_->attach(this);
}

// The executors have stopped, so nothing uses what is deleted here.
Device::~Device() {
  leave_card();
  delete_all();
  memories_.delete_all();
}

size_t Device::set_heaps() {
  // A map shows the host memory of its own, which its caches hold.
  constexpr bp_heap_flags kVisible = BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_CACHED;
  switch (options().heaps) {
    case HeapMode::kCoherent:
      heaps_[0] = make_heap(options(), BP_HEAP_DEVICE_LOCAL);
      heaps_[1] = make_heap(options(), kVisible | BP_HEAP_HOST_COHERENT);
      return 2;
    case HeapMode::kNoncoherent:
      heaps_[0] = make_heap(options(), BP_HEAP_DEVICE_LOCAL | kVisible);
      return 1;
    case HeapMode::kIntegrated:
      heaps_[0] = make_heap(options(), BP_HEAP_DEVICE_LOCAL | kVisible | BP_HEAP_HOST_COHERENT);
      return 1;
  }
  return 0;
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

std::unique_ptr<Stream> Device::make_stream(Executor& executor) {
  auto stream = std::make_unique<Stream>(*this);
  stream->queue = std::make_shared<Queue>(*instance_.host, executor, false);
  stream->lane = std::make_shared<Lane>(delays_, uint64_t{index_} << 32 | stream_count_++);
  return stream;
}

Stream* Device::default_stream() {
  return streams_.default_stream([this] { return make_stream(instance_.executors.streams); });
}

Stream* Device::create_stream() { return streams_.add(make_stream(instance_.executors.streams)); }

Stream* Device::create_callback_stream() {
  return streams_.add(make_stream(instance_.executors.callbacks));
}

void Device::renew_default_stream() {
  streams_.renew_default_stream([this] { return make_stream(instance_.executors.streams); });
}

Stream* Device::wrap_stream(const void* native) {
  return streams_.add_copy([&](const Stream& stream) { return stream.queue.get() == native; });
}

bool Device::add(Buffer* buffer) {
  return buffers_.add(buffer, reinterpret_cast<uintptr_t>(buffer->address()),
                      buffer->kind != BufferKind::kWrapped);
}

std::shared_ptr<Memory> Device::memory_at(uint64_t address) {
  std::shared_ptr<Memory> memory =
      buffers_.with_owner(address, [](const Buffer& owner) { return owner.memory; });
  return memory != nullptr ? memory : card_->find(address);
}

bool Device::is_in_use() const { return DeviceHandles::is_in_use() || !memories_.is_empty(); }

void Device::end_work() {
  const Outcome loss{.status = BP_DEVICE_LOST, .text = name_ + " is lost"};
  lose_work(streams_, events_, loss, [](Point& point) -> Point& { return point; });
  lose_semaphores(loss);
}

void Device::end_handles() {
  wait(UINT64_MAX);
  buffers_.forget_memory([](const Buffer& buffer) {
    if (buffer.kind != BufferKind::kWrapped) buffer.memory->discard();
  });
  memories_.for_each([](const PhysicalHandle& memory) { memory.room->end(); });
}

}  // namespace bp::sim
