// DeviceGuardImplInterface: how PyTorch changes the device and the stream, and uses events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

#include "memory.h"
#include "streams.h"

namespace bpt {
namespace {

thread_local c10::DeviceIndex the_device = 0;
thread_local std::vector<bp_stream*> the_streams;

// What a c10::Event keeps: PyTorch asks some events without saying their device.
struct Event {
  const bp_target* target;
  bp_event* event;
};

// The stream's handle is its number, and 0 is the default stream.
c10::Stream wrap(c10::DeviceIndex index, bp_stream* stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kBp, index),
                     reinterpret_cast<c10::StreamId>(stream));
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : the_device;
}

const bp_target* target_of(const c10::Stream& stream) {
  return device_at(stream.device_index()).target;
}

bp_stream* make_stream(const bp_target* target, int priority) {
  bp_stream_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_STREAM_DESC;
  desc.priority = priority;
  bp_stream* stream = nullptr;
  check(target->streams->create(target->streams->self, target->device, &desc, &stream),
        "stream.create");
  return stream;
}

// PyTorch's streams have no end, so that they come from a pool, as those of other devices do.
bp_stream* pooled_stream(Device& device) {
  auto& slot = device.pool[device.next_in_pool++ % kStreamPoolSize];
  bp_stream* stream = slot.load();
  if (stream != nullptr) return stream;
  stream = make_stream(device.target, 0);
  bp_stream* other = nullptr;
  if (slot.compare_exchange_strong(other, stream)) return stream;
  device.target->streams->destroy(device.target->streams->self, stream);
  return other;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kBp; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::DeviceIndex old = the_device;
    setDevice(device);
    return {kBp, old};
  }
  c10::Device getDevice() const override { return {kBp, the_device}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) the_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device device) const override {
    return wrap(index_of(device), current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return wrap(index_of(device), nullptr);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    require_open();
    Device& own = device_at(index_of(device));
    return wrap(index_of(device),
                priority == 0 ? pooled_stream(own) : make_stream(own.target, priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::DeviceIndex index = stream.device_index();
    const c10::Stream old = wrap(index, current_stream(index));
    if (the_streams.size() <= static_cast<size_t>(index)) the_streams.resize(index + 1, nullptr);
    the_streams[index] = reinterpret_cast<bp_stream*>(stream.id());
    return old;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    const bp_target* target = bpt::target_of(stream.device());
    void* native = nullptr;
    check(target->streams->native_handle(target->streams->self, stream_of(stream), &native),
          "stream.native_handle");
    return native;
  }
  bool queryStream(const c10::Stream& stream) const override {
    require_open();
    const bp_target* target = target_of(stream);
    uint32_t is_done = 0;
    check(target->streams->query(target->streams->self, stream_of(stream), &is_done),
          "stream.query");
    return is_done != 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    require_open();
    synchronize(target_of(stream), stream_of(stream), "stream.synchronize");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    require_open();
    Device& own = device_at(index < 0 ? the_device : index);
    const bp_target* target = own.target;
    check(target->devices->synchronize(target->devices->self, target->device, UINT64_MAX),
          "device.synchronize");
    // The wait for a device reports no failures of its streams.
    synchronize(target, target->default_stream, "device.synchronize");
    for (auto& slot : own.pool) {
      if (bp_stream* stream = slot.load()) synchronize(target, stream, "device.synchronize");
    }
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    const bp_target* target = target_of(stream);
    uint32_t is_capturing = 0;
    target->streams->is_capturing(target->streams->self, stream_of(stream), &is_capturing);
    return is_capturing != 0;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    require_open();
    const bp_target* target = target_of(stream);
    if (*event == nullptr) {
      bp_event_desc desc{};
      desc.struct_size = sizeof(desc);
      desc.struct_type = BP_STRUCT_EVENT_DESC;
      if (flag == c10::EventFlag::BACKEND_DEFAULT) desc.flags = BP_EVENT_TIMING;
      auto own = std::make_unique<Event>(Event{target, nullptr});
      check(target->events->create(target->events->self, target->device, &desc, &own->event),
            "event.create");
      *event = own.release();
    }
    bp_event* own = static_cast<Event*>(*event)->event;
    check(target->events->record(target->events->self, own, stream_of(stream)), "event.record");
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    const std::unique_ptr<Event> own(static_cast<Event*>(event));
    if (own != nullptr && !is_in_child()) {
      own->target->events->destroy(own->target->events->self, own->event);
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    require_open();
    const bp_target* target = target_of(stream);
    check(target->streams->wait_event(target->streams->self, stream_of(stream),
                                      static_cast<Event*>(event)->event),
          "stream.wait_event");
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    require_open();
    const auto* own = static_cast<Event*>(event);
    uint32_t is_done = 0;
    check(own->target->events->query(own->target->events->self, own->event, &is_done),
          "event.query");
    return is_done != 0;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    require_open();
    const auto* own = static_cast<Event*>(event);
    check(own->target->events->synchronize(own->target->events->self, own->event, UINT64_MAX),
          "event.synchronize");
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "torch_backplane: both events must be recorded before the time between them is "
                "asked for.");
    require_open();
    const auto* own = static_cast<Event*>(start);
    int64_t elapsed_ns = 0;
    check(own->target->events->elapsed_ns(own->target->events->self, own->event,
                                          static_cast<Event*>(end)->event, &elapsed_ns),
          "event.elapsed_ns");
    return static_cast<double>(elapsed_ns) * 1e-6;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

c10::DeviceIndex current_device() noexcept { return the_device; }

void set_current_device(c10::DeviceIndex index) {
  if (index == the_device) return;
  device_at(index);
  the_device = index;
}

bp_stream* current_stream(c10::DeviceIndex index) noexcept {
  return static_cast<size_t>(index) < the_streams.size() ? the_streams[index] : nullptr;
}

bp_stream* stream_of(const c10::Stream& stream) {
  return stream.id() == 0 ? device_at(stream.device_index()).target->default_stream
                          : reinterpret_cast<bp_stream*>(stream.id());
}

bp_stream* current_stream_of(const c10::Device& device) {
  const c10::DeviceIndex index = index_of(device);
  bp_stream* stream = current_stream(index);
  return stream != nullptr ? stream : device_at(index).target->default_stream;
}

void synchronize(const bp_target* target, bp_stream* stream, const char* call) {
  const bp_status status = target->streams->synchronize(target->streams->self, stream, UINT64_MAX);
  if (status != BP_OK) raise_failure_of(target, stream, status, call);
}

}  // namespace bpt
