// Times by events, for torch.autograd.profiler.profile(use_device="bp").
//
// PyTorch records one event before and one after each operator, on the current stream. The time of
// an operator is that between the two, so it contains the gaps between the kernels of an operator,
// and works with each device whose events have times.
#include <c10/core/Event.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "../devices.h"
#include "../streams.h"

namespace bpt {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

const c10::impl::DeviceGuardImplInterface& guard() { return *c10::impl::getDeviceGuardImpl(kBp); }

[[noreturn]] void refuse_marks() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "torch_backplane: a device of Backplane has no marks and ranges of "
                              "its own. torch.profiler.profile() shows record_function().");
}

struct EventTimes final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    const c10::DeviceIndex index = current_device();
    auto own = std::make_shared<c10::Event>(kBp, c10::EventFlag::BACKEND_DEFAULT);
    own->record(guard().getStream({kBp, index}));
    if (device != nullptr) *device = index;
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
    *event = std::move(own);
  }

  // In microseconds.
  float elapsed(const ProfilerVoidEventStub* event,
                const ProfilerVoidEventStub* event2) const override {
    const auto* first = static_cast<const c10::Event*>(event->get());
    const auto* second = static_cast<const c10::Event*>(event2->get());
    first->synchronize();
    second->synchronize();
    return static_cast<float>(first->elapsedTime(*second) * 1e3);
  }

  void mark(const char*) const override { refuse_marks(); }
  void rangePush(const char*) const override { refuse_marks(); }
  void rangePop() const override { refuse_marks(); }

  bool enabled() const override { return device_count() > 0 && is_open(); }

  void onEachDevice(std::function<void(int)> work) const override {
    const c10::DeviceIndex before = current_device();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      set_current_device(i);
      work(i);
    }
    set_current_device(before);
  }

  void synchronize() const override { guard().synchronizeDevice(current_device()); }
};

}  // namespace

void register_event_times() {
  static EventTimes the_times;
  torch::profiler::impl::registerPrivateUse1Methods(&the_times);
}

}  // namespace bpt
