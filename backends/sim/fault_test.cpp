#include <atomic>
#include <thread>

#include "backends/sim/sim_test.hpp"
#include "backplane/ops.h"

namespace bp::sim {
namespace {

constexpr bp_status kVendorFailure = -17;

TEST(SimFaults, StopWhatIsQueuedBehindASubmission) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(16);
  bp_event* gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(s.fill(stream, buffer, 1), BP_OK);
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.fail_next(stream, BP_TEST_FAULT_SUBMISSION, kVendorFailure), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 2), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 3), BP_OK);
  ASSERT_EQ(s.signal(gate), BP_OK);
  EXPECT_EQ(s.synchronize(stream), kVendorFailure);
  EXPECT_EQ(s.status(stream), kVendorFailure);
  EXPECT_EQ(s.fill(stream, buffer, 4), BP_STREAM_FAILED);
  ASSERT_EQ(s.clear(stream), BP_OK);
  EXPECT_EQ(s.read(stream, buffer), bytes_of(1));
}

TEST(SimFaults, LetQueuedWorkRunBehindDataAndTravelWithEvents) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_stream* waiter = s.make_stream(1);
  bp_buffer* buffer = s.make_buffer(16);
  bp_event* gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* after = s.make_event();
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.fail_next(stream, BP_TEST_FAULT_DATA, BP_DATA_FAILURE), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 2), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 3), BP_OK);
  ASSERT_EQ(s.record(after, stream), BP_OK);
  ASSERT_EQ(s.wait(waiter, after), BP_OK);
  ASSERT_EQ(s.signal(gate), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_DATA_FAILURE);
  EXPECT_EQ(s.synchronize(waiter), BP_DATA_FAILURE);
  EXPECT_EQ(s.fill(stream, buffer, 4), BP_STREAM_FAILED);
  ASSERT_EQ(s.clear(stream), BP_OK);
  EXPECT_EQ(s.read(stream, buffer), bytes_of(3));
}

TEST(SimFaults, ChangeOneByteOfAResult) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.fail_next(stream, BP_TEST_FAULT_CORRUPTION), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 2), BP_OK);
  std::vector<uint8_t> expected = bytes_of(2);
  expected[8] ^= 0x55;
  EXPECT_EQ(s.read(stream, buffer), expected);
  ASSERT_EQ(s.fill(stream, buffer, 2), BP_OK);
  EXPECT_EQ(s.read(stream, buffer), bytes_of(2)) << "one order is for one piece of work";
}

TEST(SimFaults, ChangeAResultOfAKernelAndNotItsWorkspace) {
  Sim s{{"protect", "no"}};
  TestTensor x(s.b, BP_F32, {4}), y(s.b, BP_F32, {4});
  x.set<float>({3, 1, 2, 0});
  const bp_sort_args args{.struct_size = sizeof(args), .x = &x, .y = &y};
  const bp_kernel* const sort = s.b.kernel(BP_OP_SORT);
  uint64_t required = 0;
  ASSERT_EQ(sort->workspace_size(sort, s.b.device, 0, &args, &required, nullptr), BP_OK);
  ASSERT_GT(required, 0u);
  bp_stream* stream = s.make_stream();
  ASSERT_EQ(s.fail_next(stream, BP_TEST_FAULT_CORRUPTION), BP_OK);
  ASSERT_EQ(s.b.launch(sort, args, stream), BP_OK) << s.b.text;
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_NE(y.get<float>(), (std::vector<float>{0, 1, 2, 3}));
  ASSERT_EQ(s.b.launch(sort, args, stream), BP_OK) << s.b.text;
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(y.get<float>(), (std::vector<float>{0, 1, 2, 3}));
}

TEST(SimFaults, FailTheAllocationThatWasOrdered) {
  Sim s;
  const bp_test_fault_ops& f = s.faults();
  ASSERT_EQ(f.fail_allocation(f.self, s.b.device, 2), BP_OK);
  bp_buffer* made[4] = {};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(s.allocate({.size_bytes = 16}, &made[i]), i == 2 ? BP_OUT_OF_MEMORY : BP_OK) << i;
    EXPECT_EQ(made[i] == nullptr, i == 2);
  }
  for (bp_buffer* buffer : made) EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimFaults, RefuseOrdersThatMeanNothing) {
  Sim s;
  bp_stream* stream = s.make_stream();
  EXPECT_EQ(s.fail_next(stream, 9, BP_INTERNAL), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.fail_next(stream, BP_TEST_FAULT_DATA, BP_OK), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.fail_next(stream, BP_TEST_FAULT_CORRUPTION, BP_INTERNAL), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.fail_next(nullptr, BP_TEST_FAULT_DATA, BP_INTERNAL), BP_INVALID_ARGUMENT);
  const void* table = nullptr;
  EXPECT_EQ(s.b.backend->get_extension(s.b.backend->self, "bp.test.fault", 2, &table),
            BP_NOT_FOUND);
  EXPECT_EQ(s.b.backend->get_extension(s.b.backend->self, "acme.fault", 1, &table), BP_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
}

struct Call {
  std::atomic<int> count = 0;
  std::atomic<bp_status> status = BP_OK;
  static void run(void* self, bp_status status) {
    static_cast<Call*>(self)->status = status;
    ++static_cast<Call*>(self)->count;
  }
};

TEST(SimLoss, EndsEveryCallButThoseThatEndHandles) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_stream* other_device = s.make_stream(1);
  bp_event* gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  bp_buffer* buffer = s.make_buffer(16);
  Call call;
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.b.streams->add_callback(s.b.streams->self, stream, Call::run, &call), BP_OK);
  ASSERT_EQ(s.wait(other_device, gate), BP_OK);
  std::atomic<bp_status> blocked = BP_OK;
  std::thread waiter([&] { blocked = s.synchronize(stream); });
  ASSERT_EQ(s.lose(), BP_OK);
  waiter.join();
  EXPECT_EQ(blocked, BP_DEVICE_LOST);
  EXPECT_EQ(s.synchronize(other_device), BP_DEVICE_LOST) << "a failure travels to those who wait";
  EXPECT_EQ(s.status(stream), BP_DEVICE_LOST);
  EXPECT_EQ(s.clear(stream), BP_DEVICE_LOST);
  EXPECT_EQ(s.fill(stream, buffer, 1), BP_DEVICE_LOST);
  EXPECT_EQ(s.signal(gate), BP_DEVICE_LOST);
  bp_buffer* more = nullptr;
  EXPECT_EQ(s.allocate({.size_bytes = 16}, &more), BP_DEVICE_LOST);
  EXPECT_EQ(s.b.devices->synchronize(s.b.devices->self, s.b.device, 0), BP_DEVICE_LOST);
  EXPECT_EQ(s.free(buffer, stream), BP_OK);
  EXPECT_EQ(s.b.streams->destroy(s.b.streams->self, stream), BP_OK);
  EXPECT_EQ(s.b.events->destroy(s.b.events->self, gate), BP_OK);
  ASSERT_EQ(s.reset(), BP_OK) << s.b.text;
  EXPECT_EQ(call.count, 1);
  EXPECT_EQ(call.status, BP_DEVICE_LOST);
}

TEST(SimLoss, IsHealedByResetForNewHandlesAndTheDefaultStream) {
  Sim s;
  uint64_t before = 0, after = 0;
  ASSERT_EQ(s.b.devices->generation(s.b.devices->self, s.b.device, &before), BP_OK);
  bp_stream* lent = s.b.default_stream();
  bp_stream* old_stream = s.make_stream();
  bp_event* old_event = s.make_event();
  bp_buffer* old_buffer = s.make_buffer(4096);
  const uint64_t free_before = s.free_bytes() + 4096;
  ASSERT_EQ(s.fill(old_stream, old_buffer, 1), BP_OK);
  ASSERT_EQ(s.lose(), BP_OK);
  ASSERT_EQ(s.reset(), BP_OK) << s.b.text;
  ASSERT_EQ(s.b.devices->generation(s.b.devices->self, s.b.device, &after), BP_OK);
  EXPECT_EQ(after, before + 1);
  EXPECT_EQ(s.free_bytes(), free_before) << "the memory of old buffers is free";
  EXPECT_EQ(s.b.default_stream(), lent);
  EXPECT_EQ(s.status(lent), BP_OK) << s.b.text;
  EXPECT_EQ(s.b.streams->destroy(s.b.streams->self, lent), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.status(old_stream), BP_DEVICE_LOST);
  EXPECT_EQ(s.clear(old_stream), BP_DEVICE_LOST);
  EXPECT_NE(s.b.text.find("before its device was reset"), std::string::npos) << s.b.text;
  bp_stream* stream = s.make_stream();
  EXPECT_EQ(s.fill(stream, old_buffer, 1), BP_DEVICE_LOST);
  EXPECT_EQ(s.record(old_event, stream), BP_DEVICE_LOST);
  EXPECT_EQ(s.b.allocator->unmap(s.b.allocator->self, old_buffer, nullptr), BP_OK)
      << "its map has ended";
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.fill(s.b.default_stream(), buffer, 6), BP_OK);
  EXPECT_EQ(s.read(s.b.default_stream(), buffer), bytes_of(6));
  EXPECT_EQ(s.free(buffer), BP_OK);
  EXPECT_EQ(s.free(old_buffer), BP_OK);
  EXPECT_EQ(s.b.streams->destroy(s.b.streams->self, old_stream), BP_OK);
  EXPECT_EQ(s.b.events->destroy(s.b.events->self, old_event), BP_OK);
}

TEST(SimLoss, EndsTheCaptureOfTheDefaultStream) {
  Sim s;
  const bp_graph_ops& graphs = *s.b.graphs;
  bp_stream* lent = s.b.default_stream();
  ASSERT_EQ(graphs.begin_capture(graphs.self, lent, nullptr), BP_OK) << s.b.text;
  ASSERT_EQ(s.lose(), BP_OK);
  ASSERT_EQ(s.reset(), BP_OK) << s.b.text;
  EXPECT_EQ(s.status(lent), BP_OK) << "it does not capture any more";
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.fill(lent, buffer, 6), BP_OK) << s.b.text;
  EXPECT_EQ(s.read(lent, buffer), bytes_of(6));
  bp_graph* graph = nullptr;
  EXPECT_EQ(graphs.end_capture(graphs.self, lent, &graph), BP_INVALID_ARGUMENT);
}

TEST(SimLoss, IsNotHealedWhileAnotherInstanceUsesTheDevice) {
  Sim s, other;
  bp_stream* theirs = other.make_stream();
  ASSERT_EQ(s.lose(), BP_OK);
  EXPECT_EQ(other.status(theirs), BP_DEVICE_LOST) << "the card is one";
  EXPECT_EQ(s.reset(), BP_UNSUPPORTED);
  EXPECT_NE(s.b.text.find("another instance"), std::string::npos) << s.b.text;
  ASSERT_EQ(other.b.streams->destroy(other.b.streams->self, theirs), BP_OK);
  EXPECT_EQ(s.reset(), BP_OK) << s.b.text;
  EXPECT_EQ(s.status(s.make_stream()), BP_OK);
}

}  // namespace
}  // namespace bp::sim
