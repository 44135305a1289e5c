#include <atomic>

#include "backends/vulkan/vulkan_test.hpp"

namespace bp::vulkan {
namespace {

constexpr uint64_t kBytes = 4096;

class VulkanStreams : public WithDevice {};

// There are more commands than a batch holds, and each needs the one before.
TEST_F(VulkanStreams, KeepOrderOverManyBatches) {
  Vulkan v;
  bp_stream* const stream = v.b.make_stream();
  bp_buffer* const a = v.b.make_buffer(kBytes);
  bp_buffer* const b = v.b.make_buffer(kBytes);
  for (uint32_t k = 1; k <= 500; ++k) {
    ASSERT_EQ(v.fill(stream, a, kBytes, k), BP_OK);
    ASSERT_EQ(v.copy(stream, b, a, kBytes), BP_OK);
    ASSERT_EQ(v.fill(stream, a, kBytes, 0), BP_OK);
    ASSERT_EQ(v.copy(stream, a, b, kBytes), BP_OK);
  }
  EXPECT_EQ(v.read(stream, a, kBytes), std::vector<uint32_t>(kBytes / 4, 500));
}

// The second stream never ran work. The first one still uses the memory that the second one frees.
TEST_F(VulkanStreams, FreeMemoryBehindTheEventsTheyWaitFor) {
  Vulkan v;
  bp_stream* const worker = v.b.make_stream();
  bp_stream* const other = v.b.make_stream();
  bp_event* const event = v.b.make_event();
  constexpr uint64_t kLarge = uint64_t{8} << 20;
  bp_buffer* const result = v.b.make_buffer(kLarge);
  for (uint32_t round = 1; round <= 8; ++round) {
    bp_buffer* const scratch = v.b.make_buffer(kLarge);
    ASSERT_EQ(v.fill(worker, scratch, kLarge, round), BP_OK);
    ASSERT_EQ(v.copy(worker, result, scratch, kLarge), BP_OK);
    ASSERT_EQ(v.record(event, worker), BP_OK);
    ASSERT_EQ(v.wait(other, event), BP_OK);
    ASSERT_EQ(v.free(scratch, other), BP_OK);
    EXPECT_EQ(v.read(worker, result, kLarge), std::vector<uint32_t>(kLarge / 4, round));
  }
}

// Work behind a signal stays on the host, and the queue of the device serves all others.
TEST_F(VulkanStreams, DoNotWaitForOneThatWaitsForTheHost) {
  Vulkan v;
  bp_stream* const held = v.b.make_stream();
  bp_stream* const other = v.b.make_stream();
  bp_event* const gate = v.b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* const after = v.b.make_event();
  bp_buffer* const a = v.b.make_buffer(kBytes);
  bp_buffer* const b = v.b.make_buffer(kBytes);
  ASSERT_EQ(v.fill(other, a, kBytes, 1), BP_OK);
  ASSERT_EQ(v.synchronize(other), BP_OK);
  ASSERT_EQ(v.wait(held, gate), BP_OK);
  ASSERT_EQ(v.fill(held, a, kBytes, 2), BP_OK);
  ASSERT_EQ(v.record(after, held), BP_OK);
  ASSERT_EQ(v.fill(other, b, kBytes, 3), BP_OK);
  EXPECT_EQ(v.read(other, b, kBytes), std::vector<uint32_t>(kBytes / 4, 3));
  EXPECT_EQ(v.read(other, a, kBytes), std::vector<uint32_t>(kBytes / 4, 1));
  // A wait for an event whose record is itself held back comes before its signal.
  ASSERT_EQ(v.wait(other, after), BP_OK);
  ASSERT_EQ(v.copy(other, b, a, kBytes), BP_OK);
  ASSERT_EQ(v.b.events->signal(v.b.events->self, gate, BP_OK), BP_OK);
  EXPECT_EQ(v.read(other, b, kBytes), std::vector<uint32_t>(kBytes / 4, 2));
}

TEST_F(VulkanStreams, CallBackOnceBehindTheirWork) {
  Vulkan v;
  bp_stream* const stream = v.b.make_stream();
  bp_buffer* const buffer = v.b.make_buffer(kBytes);
  std::atomic<int> calls = 0;
  for (int k = 0; k < 20; ++k) {
    ASSERT_EQ(v.fill(stream, buffer, kBytes, 5), BP_OK);
    ASSERT_EQ(v.b.streams->add_callback(
                  v.b.streams->self, stream,
                  [](void* data, bp_status status) {
                    if (status == BP_OK) ++*static_cast<std::atomic<int>*>(data);
                  },
                  &calls),
              BP_OK);
  }
  ASSERT_EQ(v.synchronize(stream), BP_OK);
  EXPECT_EQ(calls, 20);
}

TEST_F(VulkanStreams, MeasureTimeThatDoesNotRunBack) {
  Vulkan v;
  bp_stream* const stream = v.b.make_stream();
  bp_event* const begin = v.b.make_event(BP_EVENT_TIMING);
  bp_event* const end = v.b.make_event(BP_EVENT_TIMING);
  bp_buffer* const buffer = v.b.make_buffer(kBytes);
  for (int k = 0; k < 300; ++k) {  // A query pool has fewer places.
    ASSERT_EQ(v.record(begin, stream), BP_OK);
    ASSERT_EQ(v.fill(stream, buffer, kBytes, 5), BP_OK);
    ASSERT_EQ(v.record(end, stream), BP_OK);
    ASSERT_EQ(v.synchronize(stream), BP_OK);
    int64_t elapsed_ns = -1;
    ASSERT_EQ(v.b.events->elapsed_ns(v.b.events->self, begin, end, &elapsed_ns), BP_OK);
    EXPECT_GE(elapsed_ns, 0);
  }
}

}  // namespace
}  // namespace bp::vulkan
