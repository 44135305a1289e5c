#include "random.h"

#include <ATen/ATen.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/GeneratorImpl.h>

#include "backplane/addresses.h"
#include "graph.h"
#include "memory.h"
#include "streams.h"

namespace bpt {
namespace {

// The state is 16 bytes: the seed, then the offset. A tensor of this state is on the CPU.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : GeneratorImpl(c10::Device(kBp, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
  }
  static c10::DeviceType device_type() { return kBp; }

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                    state.numel() == 16 && state.is_contiguous(),
                "torch_backplane: the state of a generator of bp is a tensor of 16 bytes on the "
                "CPU, as get_state() gives it.");
    const auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({16}, at::kByte);
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0 && is_open(); }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < device_count() && is_open();
  }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex old = current_device();
    set_current_device(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    bp_block* block = nullptr;
    uint64_t offset = 0;
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      if (bp_target_find_block(device_at(i).target, reinterpret_cast<uint64_t>(data), &block,
                               &offset) == BP_OK) {
        return {kBp, i};
      }
    }
    TORCH_CHECK(false, "torch_backplane: the address ", data, " lies in no block of a device.");
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size_bytes) const override {
    resize_storage(storage, size_bytes);
  }
};

const bool kIsHooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<Generator>(index < 0 ? current_device() : index);
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::mutex mutex;
  static auto* all = new std::array<at::Generator, 128>;
  const c10::DeviceIndex own = index < 0 ? current_device() : index;
  TORCH_CHECK(own < 127, "torch_backplane: there is no device bp:", static_cast<int>(own), ".");
  const std::lock_guard lock(mutex);
  at::Generator& generator = (*all)[own];
  if (!generator.defined()) generator = new_generator(own);
  return generator;
}

std::pair<uint64_t, uint64_t> next_random(const std::optional<at::Generator>& generator,
                                          c10::Device device) {
  TORCH_CHECK(open_capture_count() == 0,
              "torch_backplane: random numbers cannot be captured: each ",
              "replay would repeat them. Draw them before, into a tensor that the graph reads.");
  const at::Generator own =
      generator && generator->defined() ? *generator : default_generator(device.index());
  auto* impl = at::check_generator<Generator>(std::optional<at::Generator>(own));
  const std::lock_guard lock(impl->mutex_);
  return {impl->seed_, impl->offset_++};
}

}  // namespace bpt
