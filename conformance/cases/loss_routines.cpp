// The loss of a device, and allocations that fail, as the extension bp.test.fault orders them: in
// processes of their own, since a device that is lost ends all its handles.
#include <string>

#include "backplane/test_fault.h"
#include "conformance/cases/child_routines.hpp"
#include "conformance/cases/test_host.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;
constexpr uint64_t kTimeoutNs = 10'000'000'000;

// An instance, its extension, and one handle of each kind on the device of the task.
class Patient {
 public:
  explicit Patient(const ChildTask& task)
      : entry_(task.plugin), host_(task.option_list()), instance_(open(entry_, host_)) {
    const bp_backend& backend = instance_->backend();
    const void* found = nullptr;
    if (backend.get_extension == nullptr ||
        backend.get_extension(backend.self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION, &found) !=
            BP_OK) {
      child_not_supported("the backend has no extension bp.test.fault");
    }
    faults = static_cast<const bp_test_fault_ops*>(found);
    device = instance_->device(task.device);
    if (device == nullptr) child_fails("the device is gone");
    other_device = instance_->device(task.device == 0 ? 1 : 0);
  }

  const RawInstance& instance() const { return *instance_; }

  void make_handles() {
    const bp_allocate_desc desc = request();
    must(streams().create(streams().self, device, nullptr, &stream), "stream.create");
    must(events().create(events().self, device, nullptr, &event), "event.create");
    must(memory().allocate(memory().self, device, &desc, &buffer), "allocate");
  }

  // All of them are ended, whatever became of the device.
  void end_handles() {
    must(events().destroy(events().self, event), "event.destroy");
    must(memory().free(memory().self, buffer, nullptr), "free");
    must(streams().destroy(streams().self, stream), "stream.destroy");
  }

  uint64_t generation() {
    const bp_device_properties* properties = nullptr;
    const bp_device_ops& devices = instance_->devices();
    must(devices.properties(devices.self, device, &properties), "properties");
    return properties->generation;
  }

  void must(bp_status status, const std::string& what) {
    if (status == BP_OK) return;
    child_fails(what + ": " + bp_status_name(status) + ": " + host_.take_text());
  }

  void refuses(bp_status status, bp_status want, const std::string& what) {
    const std::string text = host_.take_text();
    if (status != want) {
      child_fails(what + ": got " + bp_status_name(status) + ", expected " + bp_status_name(want));
    }
    if (text.empty()) child_fails(what + ": the call failed without an error text", "ERROR-1");
  }

  void expect_works(bp_device* which, const std::string& when) {
    const std::string problem = use_device(*instance_, which, host_);
    if (!problem.empty()) child_fails(when + ": " + problem);
  }

  static bp_allocate_desc request() {
    return {.struct_size = sizeof(bp_allocate_desc),
            .struct_type = BP_STRUCT_ALLOCATE_DESC,
            .size_bytes = kSize};
  }
  const bp_stream_ops& streams() const { return instance_->streams(); }
  const bp_event_ops& events() const { return instance_->events(); }
  const bp_allocator_ops& memory() const { return instance_->allocator(); }

  const bp_test_fault_ops* faults = nullptr;
  bp_device *device = nullptr, *other_device = nullptr;  // The other is NULL where there is none.
  bp_stream* stream = nullptr;
  bp_event* event = nullptr;
  bp_buffer* buffer = nullptr;

 private:
  static std::unique_ptr<RawInstance> open(const PluginEntry& entry, TestHost& host) {
    if (entry.get() == nullptr) child_fails("the plugin exports no bp_backend_entry");
    auto instance = std::make_unique<RawInstance>(entry, host);
    if (!instance->problem().empty()) child_fails(instance->problem());
    return instance;
  }

  PluginEntry entry_;
  TestHost host_;
  std::unique_ptr<RawInstance> instance_;
};

// Each kind of call on a device that is lost.
void expect_lost(Patient& p) {
  const bp_device_ops& devices = p.instance().devices();
  const bp_allocate_desc desc = Patient::request();
  const bp_buffer_ref whole{p.buffer, 0, kSize};
  std::vector<uint8_t> bytes(kSize);
  const uint8_t value = 1;
  uint64_t free_bytes = 0, total_bytes = 0;
  bp_stream* stream = nullptr;
  bp_event* event = nullptr;
  bp_buffer* buffer = nullptr;
  const auto lost = [&](bp_status status, const char* what) {
    p.refuses(status, BP_DEVICE_LOST, std::string(what) + " on a lost device");
  };
  lost(p.streams().create(p.streams().self, p.device, nullptr, &stream), "stream.create");
  lost(p.events().create(p.events().self, p.device, nullptr, &event), "event.create");
  lost(p.memory().allocate(p.memory().self, p.device, &desc, &buffer), "allocate");
  lost(p.memory().fill(p.memory().self, p.stream, &whole, &value, 1), "fill");
  lost(p.memory().copy_to_host(p.memory().self, p.stream, bytes.data(), &whole,
                               BP_BORROW_DURING_CALL),
       "copy_to_host");
  lost(p.streams().synchronize(p.streams().self, p.stream, kTimeoutNs), "stream.synchronize");
  lost(p.streams().status(p.streams().self, p.stream), "stream.status");
  lost(p.events().record(p.events().self, p.event, p.stream), "event.record");
  lost(p.events().synchronize(p.events().self, p.event, kTimeoutNs), "event.synchronize");
  lost(devices.synchronize(devices.self, p.device, kTimeoutNs), "device.synchronize");
  lost(devices.memory_info(devices.self, p.device, 0, &free_bytes, &total_bytes), "memory_info");
  if (stream != nullptr || event != nullptr || buffer != nullptr) {
    child_fails("a call that failed has set its out parameter", "ERROR-2");
  }
}

}  // namespace

void lose_and_reset(const ChildTask& task) {
  Patient p(task);
  const bp_device_ops& devices = p.instance().devices();
  p.expect_works(p.device, "before the loss");
  const uint64_t generation = p.generation();
  for (uint64_t round = 1; round <= 3; ++round) {
    p.make_handles();
    const bp_status lost = p.faults->lose_device(p.faults->self, p.device);
    if (lost == BP_UNSUPPORTED) child_not_supported("bp.test.fault cannot lose this device");
    p.must(lost, "lose_device");
    expect_lost(p);
    if (p.other_device != nullptr) p.expect_works(p.other_device, "another device");
    if (round == 2) p.end_handles();
    const bp_status reset = devices.reset(devices.self, p.device);
    if (reset == BP_UNSUPPORTED) return;  // This device cannot come back.
    p.must(reset, "reset");
    if (p.generation() != generation + round) child_fails("reset does not raise the generation");
    if (round != 2) {
      const bp_buffer_ref whole{p.buffer, 0, kSize};
      const uint8_t value = 1;
      const bp_status used = p.memory().fill(p.memory().self, p.stream, &whole, &value, 1);
      if (used == BP_OK) child_fails("handles from before the reset are still taken");
      p.end_handles();
    }
    p.expect_works(p.device, "behind the reset");
  }
}

// The first, the second, ... of a few allocations fails, and only that one.
void fail_allocations(const ChildTask& task) {
  Patient p(task);
  constexpr uint64_t kAllocations = 5;
  const bp_allocate_desc desc = Patient::request();
  for (uint64_t failing = 0; failing < kAllocations; ++failing) {
    const bp_status ordered = p.faults->fail_allocation(p.faults->self, p.device, failing);
    if (ordered == BP_UNSUPPORTED) child_not_supported("bp.test.fault cannot fail allocations");
    p.must(ordered, "fail_allocation");
    std::vector<bp_buffer*> buffers;
    for (uint64_t i = 0; i < kAllocations; ++i) {
      bp_buffer* buffer = nullptr;
      const bp_status status = p.memory().allocate(p.memory().self, p.device, &desc, &buffer);
      if (i == failing) {
        p.refuses(status, BP_OUT_OF_MEMORY, "the allocation that was ordered to fail");
        if (buffer != nullptr) child_fails("out_buffer was set by a failure", "ERROR-2");
      } else {
        p.must(status, "an allocation beside the one that fails");
        buffers.push_back(buffer);
      }
    }
    for (bp_buffer* buffer : buffers) {
      p.must(p.memory().free(p.memory().self, buffer, nullptr), "free");
    }
    p.expect_works(p.device, "behind an allocation that failed");
  }
}

}  // namespace bp::conformance
