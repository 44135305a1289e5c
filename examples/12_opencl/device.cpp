#include "device.hpp"

#include <span>

#include "backplane/shell/identity.hpp"
#include "backplane/shell/properties.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace acme_opencl {
namespace {

// Hosts cannot map the memory: they copy. If yours can be mapped, say so here and in memory.cpp.
bp_heap heap_of(const DeviceInfo& info) {
  bp_heap heap = bp::make_heap(info.memory_bytes, BP_HEAP_DEVICE_LOCAL);
  heap.max_allocation_bytes = info.max_allocation_bytes;
  return heap;
}

}  // namespace

Device::Device(Instance& instance, uint32_t index, const DeviceInfo& info)
    : instance_(instance),
      card_(card_of(index, info)),
      heap_(heap_of(info)),
      properties_(bp::make_properties(card_->info().name.c_str(), info.device_class,
                                      std::span(&heap_, 1), bp::kDeviceDtypes)) {
  // The identity is the same in every process. If your driver has one, copy that.
  bp::write_uuid("acme.opencl", info.name + " " + std::to_string(index), properties_.uuid);
  card_->attach(this);
}

// No work runs any more, so nothing uses what is deleted here.
Device::~Device() {
  leave_card();
  delete_all();
}

std::unique_ptr<Stream> Device::make_stream(bp::Executor& executor) {
  auto stream = std::make_unique<Stream>(*this);
  stream->queue = std::make_shared<Lane>(*instance_.host, executor, card_);
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

bool Device::add(Buffer* buffer) { return buffers_.add(buffer, buffer->address, true); }

void Device::end_work() {
  const bp::Outcome loss{.status = BP_DEVICE_LOST, .text = card_->info().name + " is lost"};
  bp::lose_work(streams_, events_, loss, [](bp::Point& point) -> bp::Point& { return point; });
  lose_semaphores(loss);
}

void Device::end_handles() {
  wait(UINT64_MAX);
  buffers_.forget_memory([](Buffer& buffer) { buffer.take_memory(); });
}

}  // namespace acme_opencl
