// Tests the backend with drivers that lack something, and with failing Vulkan calls. Each call
// fails in turn, on a loader that passes all others to the machine's loader.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <set>

#include "backends/vulkan/fake/loader.hpp"
#include "backends/vulkan/vulkan_test.hpp"

namespace bp::vulkan {
namespace {

constexpr const char* kLoaderName = "libvulkan.so.1";

// Returns NULL if the machine has no loader.
const fake::Control* open_fake() {
  void* const real = dlopen(kLoaderName, RTLD_NOW | RTLD_LOCAL);
  if (real == nullptr) return nullptr;
  link_map* map = nullptr;
  if (dlinfo(real, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  const std::string path = map->l_name;
  dlclose(real);
  // In this process the name opens this library from now on.
  void* const library = dlopen(FAKE_LOADER_PATH, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto get = reinterpret_cast<fake::GetControl*>(dlsym(library, fake::kControlName));
  return get(path.c_str());
}

class VulkanFailures : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (control == nullptr) control = open_fake();
  }

  void SetUp() override {
    if (control == nullptr) GTEST_SKIP() << "no Vulkan loader on this machine";
    control->reset({});
    if (!Vulkan().has_device()) GTEST_SKIP() << "no Vulkan device on this machine";
    EXPECT_GT(control->call_counts()["CreateInstance"], 0u) << "the fake is not in use";
    control->reset({});
  }

  // Returns what an instance on such a machine says about its devices. It must have none.
  static std::string remarks_with(const fake::Orders& orders) {
    control->reset(orders);
    const Vulkan v;
    EXPECT_FALSE(v.has_device());
    return v.b.warnings;
  }

  static inline const fake::Control* control = nullptr;
};

TEST_F(VulkanFailures, SayThatTheLoaderIsTooOld) {
  const std::string text = remarks_with({.has_no_functions = true});
  EXPECT_EQ(text, "libvulkan.so.1 lacks functions of Vulkan 1.2; install a newer loader\n");
}

TEST_F(VulkanFailures, SayThatTheDriverIsTooOld) {
  const std::string text = remarks_with({.api_version = VK_API_VERSION_1_1});
  EXPECT_NE(text.find("\" is left out: its driver has Vulkan 1.1, and 1.2 is needed; install a "
                      "newer driver"),
            std::string::npos)
      << text;
}

TEST_F(VulkanFailures, NameTheFeatureThatADeviceLacks) {
  for (const char* feature :
       {"shaderInt64", "shaderInt16", "storageBuffer16BitAccess", "storageBuffer8BitAccess",
        "shaderInt8", "bufferDeviceAddress", "timelineSemaphore", "scalarBlockLayout"}) {
    const std::string text = remarks_with({.missing_feature = feature});
    EXPECT_NE(text.find(std::string("\" is left out: it lacks ") + feature + "\n"),
              std::string::npos)
        << text;
  }
}

TEST_F(VulkanFailures, NameTheQueueOrTheMemoryThatADeviceLacks) {
  EXPECT_NE(remarks_with({.has_no_compute = true}).find("it has no queue that computes"),
            std::string::npos);
  EXPECT_NE(remarks_with({.has_no_coherent = true})
                .find("it has no memory that the host and the device see at once"),
            std::string::npos);
}

TEST_F(VulkanFailures, AreNoneIfADeviceFlushesAndItsKernelsSaySo) {
  const size_t kernel_count = Vulkan().b.kernels.size();
  control->reset({.flushes = true});
  const Vulkan v;
  ASSERT_TRUE(v.has_device());
  EXPECT_EQ(v.b.kernels.size(), kernel_count);
  const auto flush_of = [&](uint32_t op) {
    const bp_numerics* const numerics = v.b.kernel(op)->numerics;
    return numerics == nullptr ? 0 : numerics->flush;
  };
  EXPECT_EQ(flush_of(BP_OP_ADD), uint32_t{BP_FLUSH_INPUTS | BP_FLUSH_OUTPUTS});
  EXPECT_EQ(flush_of(BP_OP_MATMUL), uint32_t{BP_FLUSH_INPUTS | BP_FLUSH_OUTPUTS});
  EXPECT_EQ(flush_of(BP_OP_WHERE), 0u) << "its elements keep their bits";
}

// An allocation is tried again after ended work has freed its memory, so a single failure has no
// effect.
void expect_recovery(Vulkan& v, const fake::Control& control, uint64_t heap, VkResult result) {
  const bp_allocate_desc desc{.size_bytes = 4096, .heap_mask = uint64_t{1} << heap};
  for (const auto& [failures, status] : {std::pair(0, BP_OK), {1, BP_OK}, {2, BP_OUT_OF_MEMORY}}) {
    bp_buffer* buffer = nullptr;
    control.fail_call("AllocateMemory", 1, result, static_cast<uint64_t>(failures));
    EXPECT_EQ(v.allocate(desc, &buffer), status) << failures << " failures, heap " << heap;
    EXPECT_EQ(v.free(buffer), BP_OK);
  }
  const std::string start = "allocate: 4096 bytes were asked for: vkAllocateMemory failed: " +
                            std::string("VK_ERROR_OUT_OF_");
  EXPECT_EQ(v.b.text.substr(0, start.size()), start);
  bp_buffer* buffer = nullptr;
  EXPECT_EQ(v.allocate(desc, &buffer), BP_OK) << v.b.text;
  EXPECT_EQ(v.free(buffer), BP_OK);
}

TEST_F(VulkanFailures, SayThatAHeapIsExhaustedAndGoOn) {
  Vulkan v;
  const bp_device_properties* properties = nullptr;
  ASSERT_EQ(v.b.devices->properties(v.b.devices->self, v.b.device, &properties), BP_OK);
  for (uint64_t heap = 0; heap < properties->heap_count; ++heap) {
    expect_recovery(v, *control, heap, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    expect_recovery(v, *control, heap, VK_ERROR_OUT_OF_HOST_MEMORY);
  }
}

// ---- Each call in turn --------------------------------------------------------------------------

struct Refusal {
  std::string entry, text;
  bp_status status;
};

// One walk through the entries of the backend. It keeps the error text of each entry that did not
// return BP_OK.
class Walk {
 public:
  explicit Walk(Vulkan& v) : v_(v) {}

  void run() {
    constexpr uint64_t kBytes = 256;
    bp_stream* stream = nullptr;
    took(v_.b.streams->create(v_.b.streams->self, v_.b.device, nullptr, &stream), "stream.create");
    if (stream != nullptr) {
      visit(stream, allocate(kBytes), allocate(kBytes), make_event(), kBytes);
      took(v_.synchronize(stream), "stream.synchronize");
      EXPECT_EQ(v_.b.streams->destroy(v_.b.streams->self, stream), BP_OK) << v_.b.text;
    }
    for (bp_event* event : events_) {
      EXPECT_EQ(v_.b.events->destroy(v_.b.events->self, event), BP_OK) << v_.b.text;
    }
    for (bp_buffer* buffer : buffers_) EXPECT_EQ(v_.free(buffer), BP_OK) << v_.b.text;
  }

  std::vector<Refusal> refusals;
  bool is_right = true;

 private:
  bool took(bp_status status, const char* entry) {
    if (status != BP_OK) refusals.push_back({entry, v_.b.text, status});
    return status == BP_OK;
  }

  bp_buffer* allocate(uint64_t size_bytes) {
    bp_buffer* buffer = nullptr;
    took(v_.allocate({.size_bytes = size_bytes}, &buffer), "memory.allocate");
    if (buffer != nullptr) buffers_.push_back(buffer);
    return buffer;
  }

  bp_event* make_event() {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = BP_EVENT_TIMING};
    bp_event* event = nullptr;
    took(v_.b.events->create(v_.b.events->self, v_.b.device, &desc, &event), "event.create");
    if (event != nullptr) events_.push_back(event);
    return event;
  }

  // Computes y = x + x, where x was filled with ones by a copy.
  void visit(bp_stream* stream, bp_buffer* x, bp_buffer* y, bp_event* event, uint64_t bytes) {
    if (x == nullptr || y == nullptr) return;
    const bp_allocator_ops& memory = *v_.b.allocator;
    const std::vector<float> ones(bytes / sizeof(float), 1.0F);
    std::vector<float> twos(ones.size(), 0.0F);
    const bp_buffer_ref into{x, 0, bytes}, out{y, 0, bytes};
    bool is_whole =
        took(memory.copy_from_host(memory.self, stream, &into, ones.data(), BP_BORROW_DURING_CALL),
             "memory.copy_from_host");
    is_whole &= launch_sum(stream, x, y, static_cast<int64_t>(ones.size()));
    if (event != nullptr && took(v_.record(event, stream), "event.record")) {
      took(v_.b.events->synchronize(v_.b.events->self, event, kForever), "event.synchronize");
    }
    is_whole &= took(memory.copy_to_host(memory.self, stream, twos.data(), &out,
                                         BP_BORROW_DURING_CALL, UINT64_MAX),
                     "memory.copy_to_host");
    is_right = !is_whole || twos == std::vector<float>(twos.size(), 2.0F);
    void* pointer = nullptr;
    if (took(memory.map(memory.self, &into, &pointer), "memory.map")) {
      took(memory.unmap(memory.self, x, pointer), "memory.unmap");
    }
  }

  bool launch_sum(bp_stream* stream, bp_buffer* x, bp_buffer* y, int64_t size) {
    const int64_t shape[] = {size}, strides[] = {1};
    const bp_tensor in{.buffer = x, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
    bp_tensor out = in;
    out.buffer = y;
    const bp_add_args args{.struct_size = sizeof(args), .a = &in, .b = &in, .y = &out};
    return took(v_.b.launch(BP_OP_ADD, args, stream), "kernel.launch");
  }

  Vulkan& v_;
  std::vector<bp_buffer*> buffers_;
  std::vector<bp_event*> events_;
};

// The outcome of a walk in which one call failed.
struct Outcome {
  std::vector<Refusal> refusals;
  std::string said;  // The refusals and the log.
  bool is_right = true, has_device = false, had_failed = false;
};

class VulkanCalls : public VulkanFailures {
 protected:
  static Outcome walk_with(const std::string& name, uint64_t nth, VkResult result) {
    control->reset({});
    control->fail_call(name, nth, result, 1);
    Outcome outcome;
    Vulkan v({{"cache_path", testing::TempDir()}});
    outcome.has_device = v.has_device();
    if (v.has_device()) {
      Walk walk(v);
      walk.run();
      outcome.is_right = walk.is_right;
      outcome.refusals = walk.refusals;
      for (const Refusal& r : walk.refusals) {
        outcome.said += r.entry + " = " + std::to_string(r.status) + ": " + r.text + "\n";
      }
    }
    outcome.had_failed = control->call_counts()[name] >= nth;
    outcome.said += v.b.warnings + v.b.errors;
    return outcome;
  }

  // Returns how often each call is made in a walk without failures, before the handles are ended.
  static std::map<std::string, uint64_t> calls_of_a_walk() {
    control->reset({});
    Vulkan v({{"cache_path", testing::TempDir()}});
    Walk walk(v);
    walk.run();
    EXPECT_TRUE(walk.is_right);
    EXPECT_TRUE(walk.refusals.empty()) << walk.refusals[0].entry << ": " << walk.refusals[0].text;
    return control->call_counts();
  }

  // Fails the first, the second and the last call of each function.
  template <typename Judge>
  static void with_each_call(VkResult result, Judge&& judge) {
    for (const auto& [name, count] : calls_of_a_walk()) {
      for (const uint64_t nth : std::set<uint64_t>{1, std::min<uint64_t>(2, count), count}) {
        SCOPED_TRACE("call " + std::to_string(nth) + " of " + std::to_string(count) + " of vk" +
                     name);
        const Outcome outcome = walk_with(name, nth, result);
        EXPECT_TRUE(outcome.is_right) << "bytes were wrong";
        if (outcome.had_failed) judge(name, outcome);
      }
    }
    control->reset({});
  }
};

// Returns whether the backend can go on without the call. Such a call frees something, which is
// then lost.
bool is_optional(const std::string& name) {
  return name == "DeviceWaitIdle" || name == "GetPipelineCacheData";
}

TEST_F(VulkanCalls, AreNamedWithTheirErrorWhereTheyFail) {
  with_each_call(VK_ERROR_INITIALIZATION_FAILED, [](const std::string& name, const Outcome& o) {
    if (is_optional(name)) return;
    EXPECT_NE(o.said.find("VK_ERROR_INITIALIZATION_FAILED"), std::string::npos) << o.said;
    EXPECT_NE(o.said.find("vk" + name), std::string::npos) << o.said;
  });
}

TEST_F(VulkanCalls, ThatRunOutOfMemoryAreToldAsSuch) {
  with_each_call(VK_ERROR_OUT_OF_HOST_MEMORY, [](const std::string& name, const Outcome& o) {
    if (is_optional(name) || !o.has_device) return;
    // If the queue does not take a batch, the device is lost.
    const bp_status expected = name == "QueueSubmit" || name == "EndCommandBuffer"
                                   ? bp_status{BP_DEVICE_LOST}
                                   : bp_status{BP_OUT_OF_MEMORY};
    for (const Refusal& r : o.refusals) {
      EXPECT_TRUE(r.status == BP_OUT_OF_MEMORY || r.status == BP_STREAM_FAILED ||
                  r.status == expected)
          << o.said;
      EXPECT_NE(r.text, "") << r.entry;
    }
  });
}

TEST_F(VulkanCalls, ThatLoseTheDeviceMakeAllLaterOnesFail) {
  with_each_call(VK_ERROR_DEVICE_LOST, [](const std::string& name, const Outcome& o) {
    if (is_optional(name) || !o.has_device || o.refusals.empty()) return;
    EXPECT_EQ(o.refusals.front().status, BP_DEVICE_LOST) << o.said;
    EXPECT_NE(o.refusals.front().text, "");
  });
}

// Expects that after a driver lost the device, existing handles keep the failure, and a reset opens
// the device again.
void expect_reset_ends_loss_by(const fake::Control& control, const char* name) {
  Vulkan v;
  bp_stream* const before = v.b.make_stream();
  bp_buffer* const lost = v.b.make_buffer(64);
  control.fail_call(name, 1, VK_ERROR_DEVICE_LOST, 1);
  static_cast<void>(v.fill(before, lost, 64, 7));
  EXPECT_EQ(v.synchronize(before), BP_DEVICE_LOST) << name;
  EXPECT_EQ(v.synchronize(before), BP_DEVICE_LOST) << name;
  EXPECT_NE(v.b.text.find(name), std::string::npos) << v.b.text;
  ASSERT_EQ(v.b.devices->reset(v.b.devices->self, v.b.device), BP_OK) << v.b.text;
  bp_stream* const stream = v.b.make_stream();
  bp_buffer* const buffer = v.b.make_buffer(64);
  ASSERT_EQ(v.fill(stream, buffer, 64, 7), BP_OK) << v.b.text;
  EXPECT_EQ(v.read(stream, buffer, 64), std::vector<uint32_t>(16, 7)) << name;
}

TEST_F(VulkanCalls, ThatLoseTheDeviceAreEndedByAReset) {
  for (const char* name : {"QueueSubmit", "WaitSemaphores"}) {
    expect_reset_ends_loss_by(*control, name);
  }
}

}  // namespace
}  // namespace bp::vulkan
