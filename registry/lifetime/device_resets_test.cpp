// Tests that the host forgets all handles of a device that is reset.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "backplane/addresses.h"
#include "backplane/ops.h"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr uint64_t kLarge = 20ull << 20;  // A block of this size has a segment for itself.
constexpr uint64_t kSmall = 4096;

// The buffers, streams, events and plans of the backend. A reset ends all of them.
struct Alive {
  std::set<const void*> handles;
  const void* default_stream = nullptr;
  bp_status reset_status = BP_OK;

  template <typename T>
  bp_status make(T** out) {
    static uintptr_t last = 0;  // No handle has the address of an earlier one.
    *out = reinterpret_cast<T*>(last += 4096);
    handles.insert(*out);
    return BP_OK;
  }
  bp_status use(const void* handle, const char* call) const {
    EXPECT_TRUE(handle == nullptr || handle == default_stream || handles.contains(handle))
        << call << " got a dead handle";
    return BP_OK;
  }
  bp_status end(const void* handle, const char* call) {
    static_cast<void>(use(handle, call));
    handles.erase(handle);
    return BP_OK;
  }
} alive;

void watch_memory(FakeBackend& fake) {
  fake.device_ops.reset = [](void* self, bp_device*) -> bp_status {
    if (alive.reset_status == BP_OK) alive.handles.clear();
    const bp_host& host = *FakeBackend::from(self).host;
    return alive.reset_status == BP_OK
               ? BP_OK
               : host.set_error(host.self, alive.reset_status, "another instance uses the device");
  };
  fake.allocator.allocate = [](void*, bp_device*, const bp_allocate_desc*,
                               bp_buffer** out) -> bp_status { return alive.make(out); };
  fake.allocator.deallocate = [](void*, bp_buffer* buffer, bp_stream* stream) -> bp_status {
    static_cast<void>(alive.use(stream, "free"));
    return alive.end(buffer, "free");
  };
}

void watch_streams(FakeBackend& fake) {
  fake.streams.create = [](void*, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    return alive.make(out);
  };
  fake.streams.destroy = [](void*, bp_stream* stream) -> bp_status {
    return alive.end(stream, "stream.destroy");
  };
  fake.streams.synchronize = [](void*, bp_stream* stream, uint64_t) -> bp_status {
    return alive.use(stream, "stream.synchronize");
  };
  fake.streams.query = [](void*, bp_stream* stream, uint32_t* out_done) -> bp_status {
    *out_done = 0;
    return alive.use(stream, "stream.query");
  };
  fake.events.create = [](void*, bp_device*, const bp_event_desc*, bp_event** out) -> bp_status {
    return alive.make(out);
  };
  fake.events.destroy = [](void*, bp_event* event) -> bp_status {
    return alive.end(event, "event.destroy");
  };
  fake.events.record = [](void*, bp_event* event, bp_stream* stream) -> bp_status {
    static_cast<void>(alive.use(stream, "event.record"));
    return alive.use(event, "event.record");
  };
  fake.events.query = [](void*, bp_event* event, uint32_t* out_done) -> bp_status {
    *out_done = 0;
    return alive.use(event, "event.query");
  };
  fake.events.synchronize = [](void*, bp_event* event, uint64_t) -> bp_status {
    return alive.use(event, "event.synchronize");
  };
}

// A kernel of add with a plan that is a handle of the backend.
bp_kernel planner() {
  bp_kernel kernel = make_kernel("planner");
  kernel.prepare = [](const bp_kernel*, bp_device*, const bp_prepare_desc*, const void*,
                      bp_plan** out_plan) -> bp_status { return alive.make(out_plan); };
  kernel.plan_info = [](const bp_kernel*, const bp_plan*, bp_plan_info*) -> bp_status {
    return BP_OK;
  };
  kernel.plan_pack = [](const bp_kernel*, const bp_launch*, const void*,
                        const bp_buffer_ref*) -> bp_status { return BP_OK; };
  kernel.plan_release = [](const bp_kernel*, bp_plan* plan) -> bp_status {
    return alive.end(plan, "plan_release");
  };
  return kernel;
}

class DeviceResets : public testing::TestWithParam<const char*> {
 protected:
  DeviceResets() {
    alive = {};
    alive.default_stream = &fake;
    watch_memory(fake);
    watch_streams(fake);
    fake.kernels = {&kernel};
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }
  ~DeviceResets() override {
    EXPECT_EQ(bp_registry_destroy(r.registry), BP_OK) << bp_error_text();
    r.registry = nullptr;
    EXPECT_TRUE(alive.handles.empty()) << "a handle leaked";
  }

  bp_status reset() const { return target->devices->reset(target->devices->self, target->device); }
  bp_block* take(uint64_t size_bytes, bp_stream* stream = nullptr) const {
    bp_block* block = nullptr;
    EXPECT_EQ(bp_block_allocate(target, stream, size_bytes, &block), BP_OK) << bp_error_text();
    return block;
  }
  bp_stream* create() const {
    bp_stream* stream = nullptr;
    EXPECT_EQ(target->streams->create(target->streams->self, target->device, nullptr, &stream),
              BP_OK);
    return stream;
  }
  bp_cache_statistics statistics() const {
    bp_cache_statistics s{.struct_size = sizeof(s), .struct_type = BP_STRUCT_CACHE_STATISTICS};
    EXPECT_EQ(bp_cache_get_statistics(target, &s), BP_OK) << bp_error_text();
    return s;
  }

  FakeBackend fake;  // It outlives the registry.
  bp_kernel kernel = planner();
  TestRegistry r{BP_REGISTRY_IGNORE_ENVIRONMENT, GetParam()};
  const bp_target* target = nullptr;
};

TEST_P(DeviceResets, LeaveNoFreeMemoryInTheCache) {
  for (const uint64_t size_bytes : {kLarge, kSmall}) {
    EXPECT_EQ(bp_block_free(take(size_bytes)), BP_OK);
    EXPECT_EQ(bp_block_free(take(size_bytes, create())), BP_OK);
  }
  ASSERT_EQ(reset(), BP_OK);
  EXPECT_EQ(statistics().reserved_bytes, 0u);
  for (const uint64_t size_bytes : {kLarge, kSmall}) {
    bp_block* const block = take(size_bytes);
    EXPECT_TRUE(alive.handles.contains(block->ref.buffer)) << "the memory has ended";
    EXPECT_EQ(bp_block_free(block), BP_OK);
  }
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
}

TEST_P(DeviceResets, LetBlocksInUseBeFreedAndNeverUsedAgain) {
  for (const uint64_t size_bytes : {kLarge, kSmall}) {
    bp_block* const block = take(size_bytes);
    bp_block* const neighbour = take(size_bytes);
    bp_block* const shared = take(size_bytes);
    EXPECT_EQ(bp_block_record_stream(shared, create()), BP_OK);
    uint64_t address = 0;
    EXPECT_EQ(bp_block_address(block, &address), BP_OK) << bp_error_text();
    ASSERT_EQ(reset(), BP_OK);
    EXPECT_EQ(bp_block_address(neighbour, &address), BP_DEVICE_LOST);
    for (bp_block* const one : {block, neighbour, shared}) EXPECT_EQ(bp_block_free(one), BP_OK);
    EXPECT_EQ(statistics().allocated_bytes, 0u);
    bp_block* const later = take(size_bytes);
    EXPECT_TRUE(alive.handles.contains(later->ref.buffer)) << "the memory has ended";
    EXPECT_EQ(bp_block_free(later), BP_OK);
  }
}

TEST_P(DeviceResets, ForgetEventsAndStreamsThatBlocksWaitFor) {
  bp_block* const shared = take(kLarge);
  bp_stream* const stream = create();
  EXPECT_EQ(bp_block_record_stream(shared, stream), BP_OK);
  EXPECT_EQ(bp_block_free(shared), BP_OK);  // It waits for an event on `stream`.
  bp_block* const own = take(kLarge, stream);
  EXPECT_EQ(bp_block_free(own), BP_OK);
  EXPECT_EQ(target->streams->destroy(target->streams->self, stream), BP_OK);
  ASSERT_EQ(reset(), BP_OK);
  EXPECT_EQ(statistics().allocated_bytes, 0u);
  EXPECT_EQ(bp_block_free(take(kLarge)), BP_OK);
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
}

TEST_P(DeviceResets, EndPreparedCalls) {
  const AddCall call;
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  ASSERT_EQ(reset(), BP_OK);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_DEVICE_LOST);
  EXPECT_STREQ(bp_error_text(),
               "add: the call was prepared before its device was reset; prepare it anew");
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_P(DeviceResets, ThatFailChangeNothing) {
  bp_block* const block = take(kLarge);
  const bp_buffer* const buffer = block->ref.buffer;
  EXPECT_EQ(bp_block_free(block), BP_OK);
  alive.reset_status = BP_UNSUPPORTED;
  EXPECT_EQ(reset(), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "another instance uses the device");
  bp_block* const again = take(kLarge);
  EXPECT_EQ(again->ref.buffer, buffer);
  EXPECT_EQ(bp_block_free(again), BP_OK);
}

INSTANTIATE_TEST_SUITE_P(Plain, DeviceResets, testing::Values("", "validate,leak"));

// The hidden streams of host fallbacks are handles of the host device.
TEST(DeviceResetsOfTheHost, ForgetTheStreamsOfFallbacks) {
  alive = {};
  FakeBackend device("acme.npu"), host("acme.cpu", 1, BP_DEVICE_HOST);
  device.streams.status = [](void*, bp_stream*) -> bp_status { return BP_OK; };
  const bp_kernel kernel = make_kernel("add");
  host.kernels = {&kernel};
  alive.default_stream = &host;
  watch_memory(host);
  watch_streams(host);
  host.allocator.allocate = [](void*, bp_device*, const bp_allocate_desc* desc,
                               bp_buffer** out) -> bp_status {
    *out = reinterpret_cast<bp_buffer*>(new unsigned char[desc->size_bytes]);
    return BP_OK;
  };
  host.allocator.deallocate = [](void*, bp_buffer* buffer, bp_stream*) -> bp_status {
    delete[] reinterpret_cast<unsigned char*>(buffer);
    return BP_OK;
  };
  {
    TestRegistry r(BP_REGISTRY_IGNORE_ENVIRONMENT);
    ASSERT_EQ(device.load(r.registry), BP_OK) << bp_error_text();
    ASSERT_EQ(host.load(r.registry), BP_OK) << bp_error_text();
    const AddCall call;
    EXPECT_EQ(bp_op_launch(r.target(0), nullptr, 0, BP_OP_ADD, &call.args), BP_OK)
        << bp_error_text();
    EXPECT_EQ(alive.handles.size(), 1u) << "the stream of the fallback";
    EXPECT_EQ(bp_cache_empty(r.target(1)), BP_OK) << bp_error_text();
    const bp_device_ops& devices = *r.target(1)->devices;
    ASSERT_EQ(devices.reset(devices.self, r.target(1)->device), BP_OK);
    EXPECT_EQ(bp_op_launch(r.target(0), nullptr, 0, BP_OP_ADD, &call.args), BP_OK)
        << bp_error_text();
    EXPECT_EQ(alive.handles.size(), 1u) << "a stream of its own";
  }
  EXPECT_TRUE(alive.handles.empty());
}

}  // namespace
}  // namespace bp::core
