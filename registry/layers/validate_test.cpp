// Tests what the layer validate refuses and reports, in front of a backend that takes everything.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

#include "registry/layers/captures.hpp"
#include "registry/tests/validate_fixture.hpp"

namespace bp::core {
namespace {

TEST_F(ValidateTest, RefusesWhatWasFreed) {
  bp_buffer* buffer = allocate();
  EXPECT_EQ(free(buffer), BP_OK);
  EXPECT_EQ(free(buffer), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-5] memory.deallocate: buffer 0x");
  expect_words("was ended before, by memory.deallocate called from ");
  EXPECT_EQ(fill(r_.target()->default_stream, buffer), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-5] memory.fill: buffer 0x");
  EXPECT_EQ(launch(r_.target()->default_stream, buffer, buffer), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-5] kernel.launch: tensor a (f32[4] at 0x");
  EXPECT_EQ(fake_.fills, 0);
  EXPECT_EQ(reports(), 3);
  EXPECT_EQ(free(nullptr), BP_OK);
}

// The program ends if the layer waits for a lock that it holds, because such a thread cannot be
// joined.
TEST_F(ValidateTest, LetsTheLogCallTheBackendAgain) {
  bp_buffer* const buffer = allocate();
  EXPECT_EQ(free(buffer), BP_OK);
  r_.on_log = [&] { EXPECT_EQ(free(allocate()), BP_OK); };
  std::promise<void> returned;
  std::thread thread([&] {
    EXPECT_EQ(free(buffer), BP_INVALID_ARGUMENT);
    returned.set_value();
  });
  if (returned.get_future().wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    std::fputs("deallocate() has not returned after 30 s\n", stderr);
    std::_Exit(1);
  }
  thread.join();
  EXPECT_FALSE(r_.on_log) << "the refusal is in the log";
}

TEST_F(ValidateTest, RefusesHandlesOfOthers) {
  char foreign = 0;
  EXPECT_EQ(free(reinterpret_cast<bp_buffer*>(&foreign)), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-1] memory.deallocate: buffer 0x");
  expect_words("is not of this backend");
  EXPECT_EQ(streams().status(streams().self, reinterpret_cast<bp_stream*>(&foreign)),
            BP_UNSUPPORTED)
      << "the backend does not offer it, so that nobody looks at the handle";
  EXPECT_EQ(streams().destroy(streams().self, reinterpret_cast<bp_stream*>(&foreign)),
            BP_INVALID_ARGUMENT);
  expect_words("[STREAM-2] stream.destroy: stream 0x");
  bp_buffer* other = allocate(64, 1);
  EXPECT_EQ(fill(r_.target()->default_stream, other), BP_INVALID_ARGUMENT);
  expect_words("is of another device than stream");
  EXPECT_EQ(launch(r_.target()->default_stream, other, other), BP_INVALID_ARGUMENT);
  expect_words("[KERNEL-7] kernel.launch: tensor a");
  EXPECT_EQ(free(other), BP_OK);
}

// A host may ask before it allocates, but a buffer that it gives has to be one.
TEST_F(ValidateTest, SizesOfWorkspaceNeedNoBuffersAndFollowNoOthers) {
  kernel_.workspace_size = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*,
                              uint64_t* out_required, uint64_t* out_preferred) -> bp_status {
    *out_required = *out_preferred = 64;
    return BP_OK;
  };
  TestRegistry r(0, "validate");
  ASSERT_EQ(fake_.load(r.registry), BP_OK) << bp_error_text();
  const int64_t shape[] = {4}, strides[] = {1};
  bp_tensor x{.shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  const bp_add_args args{.struct_size = sizeof(args), .a = &x, .b = &x, .y = &x};
  const bp_kernel* kernel = bp_target_kernel(r.target(), 0);
  uint64_t required = 0, preferred = 0;
  const auto ask = [&] {
    return kernel->workspace_size(kernel, r.target()->device, 0, &args, &required, &preferred);
  };
  EXPECT_EQ(ask(), BP_OK) << bp_error_text();
  EXPECT_EQ(required, 64);
  char nobodys[64]{};
  x.buffer = reinterpret_cast<bp_buffer*>(nobodys);
  EXPECT_EQ(ask(), BP_INVALID_ARGUMENT);
  expect_words("tensor a");
}

TEST_F(ValidateTest, RefusesRangesAndTensorsThatLeaveTheirBuffers) {
  bp_buffer* buffer = allocate(64);
  bp_stream* on = r_.target()->default_stream;
  EXPECT_EQ(fill(on, buffer, 60, 8), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-1] memory.fill: 8 bytes from byte 60 on leave buffer 0x");
  EXPECT_EQ(fill(on, buffer, UINT64_MAX, 8), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill(on, buffer, 56, 8), BP_OK);
  EXPECT_EQ(launch(on, buffer, buffer, 17), BP_INVALID_ARGUMENT);
  expect_words("[TENSOR-5] kernel.launch: tensor a");
  expect_words("it ends at byte 68 of a buffer of 64");
  EXPECT_EQ(launch(on, buffer, buffer, 16), BP_OK);
  EXPECT_EQ(free(buffer), BP_OK);
}

TEST_F(ValidateTest, KnowsTheRulesOfMapsEventsAndStreams) {
  bp_buffer* buffer = allocate(64);
  const bp_buffer_ref range{buffer, 0, 64};
  const bp_buffer_ref part{buffer, 8, 8};
  void *pointer = nullptr, *second = nullptr;
  EXPECT_EQ(memory().map(memory().self, &range, &pointer), BP_OK);
  EXPECT_EQ(memory().map(memory().self, &part, &second), BP_OK);
  EXPECT_EQ(memory().unmap(memory().self, buffer, second), BP_OK);
  EXPECT_EQ(memory().unmap(memory().self, buffer, second), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-22] memory.unmap: no map of buffer 0x");
  EXPECT_EQ(memory().unmap(memory().self, buffer, pointer), BP_OK);
  EXPECT_EQ(memory().unmap(memory().self, buffer, pointer), BP_INVALID_ARGUMENT);
  bp_event* plain = event();
  bp_event* host = event(BP_EVENT_HOST_SIGNAL);
  bp_stream* on = r_.target()->default_stream;
  EXPECT_EQ(events().record(events().self, host, on), BP_INVALID_ARGUMENT);
  expect_words("[EVENT-9]");
  EXPECT_EQ(events().signal(events().self, plain, BP_OK), BP_INVALID_ARGUMENT);
  expect_words("[EVENT-12]");
  EXPECT_EQ(events().signal(events().self, host, BP_OK), BP_OK);
  EXPECT_EQ(events().signal(events().self, host, BP_OK), BP_INVALID_ARGUMENT);
  int64_t elapsed = 0;
  EXPECT_EQ(events().elapsed_ns(events().self, plain, plain, &elapsed), BP_INVALID_ARGUMENT);
  expect_words("[EVENT-11]");
  EXPECT_EQ(streams().destroy(streams().self, on), BP_INVALID_ARGUMENT);
  expect_words("[STREAM-6]");
  EXPECT_EQ(events().destroy(events().self, plain), BP_OK);
  EXPECT_EQ(events().destroy(events().self, plain), BP_INVALID_ARGUMENT);
  expect_words("[EVENT-3] event.destroy: event 0x");
  EXPECT_EQ(events().destroy(events().self, host), BP_OK);
  EXPECT_EQ(free(buffer), BP_OK);
}

TEST_F(ValidateTest, ReportsWorkOfTwoStreamsThatNothingOrders) {
  bp_buffer* buffer = allocate(64);
  bp_stream *first = stream(), *second = stream();
  EXPECT_EQ(fill(first, buffer), BP_OK);
  EXPECT_EQ(launch(second, buffer, buffer), BP_OK) << "it is legal, and racy";
  EXPECT_GT(reports(), 0);
  EXPECT_NE(r_.log.find("acme.npu/validate: [STREAM-3] kernel.launch: read after write without an "
                        "order: kernel add.fast on stream 0x"),
            std::string::npos)
      << r_.log;
  EXPECT_NE(r_.log.find(", as fill on stream 0x"), std::string::npos) << r_.log;
  EXPECT_EQ(streams().synchronize(streams().self, first, UINT64_MAX), BP_OK);
  EXPECT_EQ(streams().synchronize(streams().self, second, UINT64_MAX), BP_OK);
  const uint64_t before = reports();
  EXPECT_EQ(fill(first, buffer), BP_OK);
  bp_event* between = event();
  EXPECT_EQ(events().record(events().self, between, first), BP_OK);
  EXPECT_EQ(streams().wait_event(streams().self, second, between), BP_OK);
  EXPECT_EQ(launch(second, buffer, buffer), BP_OK);
  EXPECT_EQ(reports(), before) << r_.log;
  EXPECT_EQ(free(buffer), BP_OK);
  EXPECT_EQ(reports(), before + 2) << "two streams may still use it\n" << r_.log;
  EXPECT_EQ(events().destroy(events().self, between), BP_OK);
  for (bp_stream* each : {first, second}) {
    EXPECT_EQ(streams().destroy(streams().self, each), BP_OK);
  }
}

TEST_F(ValidateTest, DoesNotReportTheAllocatorCacheAndItsBlocks) {
  for (int i = 0; i < 3; ++i) {
    bp_block* block = nullptr;
    ASSERT_EQ(bp_block_allocate(r_.target(), nullptr, 1024, &block), BP_OK) << bp_error_text();
    EXPECT_EQ(fill(r_.target()->default_stream, block->ref.buffer, block->ref.byte_offset), BP_OK);
    EXPECT_EQ(bp_block_free(block), BP_OK);
  }
  EXPECT_EQ(bp_registry_unload(r_.registry, plugin_, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(reports(), 0) << r_.log;
}

TEST(Captures, TakeInWhatWaitsForTheirEventsAndEndAsAWhole) {
  layers::Captures captures;
  int handles[4];
  const auto stream = [&](int i) { return reinterpret_cast<bp_stream*>(&handles[i]); };
  auto* const event = reinterpret_cast<bp_event*>(&handles[3]);
  captures.record(event, stream(0));
  EXPECT_EQ(captures.origin(event), nullptr) << "recorded outside of a capture";
  EXPECT_TRUE(captures.begin(stream(0)));
  EXPECT_FALSE(captures.begin(stream(0)));
  captures.record(event, stream(0));
  EXPECT_EQ(captures.origin(event), stream(0));
  EXPECT_TRUE(captures.join(stream(1), stream(0)));
  EXPECT_FALSE(captures.join(stream(1), stream(0))) << "it is in it";
  EXPECT_TRUE(captures.end(stream(2)).empty());
  EXPECT_TRUE(captures.end(stream(1)).empty()) << "only who began a capture ends it";
  EXPECT_EQ(captures.end(stream(0)).size(), 2);
  EXPECT_EQ(captures.origin(event), nullptr) << "the capture is over";
}

TEST(ValidateLayer, RefusesRacesWhereItIsAskedTo) {
  TestRegistry r(0, "validate", "validate.races=fail");
  FakeBackend fake;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  const bp_allocator_ops& memory = *r.target()->allocator;
  const bp_stream_ops& streams = *r.target()->streams;
  bp_stream* other = nullptr;
  ASSERT_EQ(streams.create(streams.self, r.target()->device, nullptr, &other), BP_OK);
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 8};
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(memory.allocate(memory.self, r.target()->device, &desc, &buffer), BP_OK);
  const bp_buffer_ref range{buffer, 0, 8};
  const unsigned char zero = 0;
  EXPECT_EQ(memory.fill(memory.self, other, &range, &zero, 1), BP_OK);
  EXPECT_EQ(memory.fill(memory.self, r.target()->default_stream, &range, &zero, 1),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(bp_error_text()).substr(0, 24), "[STREAM-3] memory.fill: ");
  EXPECT_EQ(fake.fills, 1);
  EXPECT_EQ(streams.synchronize(streams.self, other, UINT64_MAX), BP_OK);
  EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK);
  EXPECT_EQ(streams.destroy(streams.self, other), BP_OK);
}

TEST(ValidateLayer, PoisonsWhatWasBorrowedDuringACall) {
  static const unsigned char* kept = nullptr;
  FakeBackend fake;
  fake.allocator.copy_from_host = [](void*, bp_stream*, const bp_buffer_ref*, const void* src,
                                     bp_borrow) -> bp_status {
    kept = static_cast<const unsigned char*>(src);
    EXPECT_EQ(kept[0], 7);
    return BP_OK;
  };
  TestRegistry r(0, "validate");
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  const bp_allocator_ops& memory = *r.target()->allocator;
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 8};
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(memory.allocate(memory.self, r.target()->device, &desc, &buffer), BP_OK);
  const bp_buffer_ref range{buffer, 0, 8};
  const unsigned char bytes[8] = {7};
  for (const bp_borrow borrow : {BP_BORROW_DURING_CALL, BP_BORROW_UNTIL_COMPLETE}) {
    EXPECT_EQ(memory.copy_from_host(memory.self, r.target()->default_stream, &range, bytes, borrow),
              BP_OK);
    EXPECT_EQ(kept == bytes, borrow == BP_BORROW_UNTIL_COMPLETE);
    EXPECT_EQ(kept[0], borrow == BP_BORROW_DURING_CALL ? 0xDB : 7);
  }
  const bp_device_ops& devices = *r.target()->devices;
  EXPECT_EQ(devices.synchronize(devices.self, r.target()->device, UINT64_MAX), BP_OK);
  EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK);
}

}  // namespace
}  // namespace bp::core
