// Tests the failures that a test can order with bp.test.fault, and the device guard.
#include <thread>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/test_fault.h"

namespace bp {
namespace {

constexpr uint64_t kSize = 16;
constexpr bp_status kVendorFailure = -17;

std::vector<uint8_t> bytes_of(uint8_t value) { return std::vector<uint8_t>(kSize, value); }

// The middle byte is wrong.
std::vector<uint8_t> corrupted_bytes_of(uint8_t value) {
  std::vector<uint8_t> bytes = bytes_of(value);
  bytes[kSize / 2] ^= 0x55;
  return bytes;
}

class Faults : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const void* table = nullptr;
    ASSERT_NE(b.backend->get_extension, nullptr);
    ASSERT_EQ(b.backend->get_extension(b.backend->self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION,
                                       &table),
              BP_OK)
        << b.text;
    faults = static_cast<const bp_test_fault_ops*>(table);
    stream = GetParam() ? b.default_stream() : b.make_stream();
    buffer = b.make_buffer(kSize);
  }

  void TearDown() override { b.allocator->deallocate(b.allocator->self, buffer, nullptr); }

  bp_status fail_next(bp_test_fault_kind kind, bp_status status = BP_OK) {
    return faults->fail_next(faults->self, stream, kind, status);
  }
  bp_status fill(uint8_t value) {
    const bp_buffer_ref range{buffer, 0, kSize};
    return b.allocator->fill(b.allocator->self, stream, &range, &value, 1);
  }
  bp_status copy_from_host(const std::vector<uint8_t>& bytes) {
    const bp_buffer_ref range{buffer, 0, kSize};
    return b.allocator->copy_from_host(b.allocator->self, stream, &range, bytes.data(),
                                       BP_BORROW_DURING_CALL);
  }
  std::vector<uint8_t> read() {
    std::vector<uint8_t> bytes(kSize);
    const bp_buffer_ref range{buffer, 0, kSize};
    EXPECT_EQ(b.allocator->copy_to_host(b.allocator->self, stream, bytes.data(), &range,
                                        BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << b.text;
    return bytes;
  }
  bp_status synchronize() { return b.streams->synchronize(b.streams->self, stream, UINT64_MAX); }
  bp_status clear() { return b.streams->clear_failure(b.streams->self, stream); }

  // Holds the stream back until open() is called.
  void hold() {
    gate = b.make_event(BP_EVENT_HOST_SIGNAL);
    ASSERT_EQ(b.streams->wait_event(b.streams->self, stream, gate), BP_OK) << b.text;
  }
  void open() { ASSERT_EQ(b.events->signal(b.events->self, gate, BP_OK), BP_OK) << b.text; }

  TestBackend b{BACKEND_PATH};
  const bp_test_fault_ops* faults = nullptr;
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  bp_event* gate = nullptr;
};

INSTANTIATE_TEST_SUITE_P(, Faults, testing::Bool(),
                         [](const auto& test) { return test.param ? "Default" : "Created"; });

TEST_P(Faults, StopWhatIsQueuedBehindASubmission) {
  ASSERT_EQ(fill(1), BP_OK);
  hold();
  ASSERT_EQ(fail_next(BP_TEST_FAULT_SUBMISSION, kVendorFailure), BP_OK);
  ASSERT_EQ(fill(2), BP_OK);
  ASSERT_EQ(fill(3), BP_OK);
  open();
  EXPECT_EQ(synchronize(), kVendorFailure);
  EXPECT_EQ(fill(4), BP_STREAM_FAILED);
  ASSERT_EQ(clear(), BP_OK);
  EXPECT_EQ(read(), bytes_of(1));
}

TEST_P(Faults, LetQueuedWorkRunBehindData) {
  hold();
  ASSERT_EQ(fail_next(BP_TEST_FAULT_DATA, BP_DATA_FAILURE), BP_OK);
  ASSERT_EQ(fill(2), BP_OK);
  ASSERT_EQ(fill(3), BP_OK);
  open();
  EXPECT_EQ(synchronize(), BP_DATA_FAILURE);
  EXPECT_EQ(fill(4), BP_STREAM_FAILED);
  ASSERT_EQ(clear(), BP_OK);
  EXPECT_EQ(read(), bytes_of(3));
}

TEST_P(Faults, ReachWorkThatRunsAtOnce) {
  ASSERT_EQ(fail_next(BP_TEST_FAULT_SUBMISSION, BP_ABORTED), BP_OK);
  ASSERT_EQ(copy_from_host(bytes_of(1)), BP_OK);
  EXPECT_EQ(synchronize(), BP_ABORTED);
  EXPECT_NE(b.text.find("bp.test.fault"), std::string::npos) << b.text;
  ASSERT_EQ(clear(), BP_OK);
  ASSERT_EQ(copy_from_host(bytes_of(2)), BP_OK) << "one order is for one piece of work";
  EXPECT_EQ(read(), bytes_of(2));
}

TEST_P(Faults, ChangeOneByteOfAResult) {
  ASSERT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION), BP_OK);
  ASSERT_EQ(fill(2), BP_OK);
  EXPECT_EQ(read(), corrupted_bytes_of(2));
  ASSERT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION), BP_OK);
  ASSERT_EQ(copy_from_host(bytes_of(3)), BP_OK);
  EXPECT_EQ(read(), corrupted_bytes_of(3));
  ASSERT_EQ(fill(4), BP_OK);
  ASSERT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION), BP_OK);
  EXPECT_EQ(read(), corrupted_bytes_of(4)) << "the copy to the host is work too";
  EXPECT_EQ(read(), bytes_of(4));
}

TEST_P(Faults, ReachKernels) {
  TestTensor x(b, BP_I64, {2}), y(b, BP_I64, {2});
  x.set<int64_t>({5, 5});
  const bp_add_args args{.a = &x, .b = &x, .y = &y};
  ASSERT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION), BP_OK);
  ASSERT_EQ(b.launch(BP_OP_ADD, args, stream), BP_OK) << b.text;
  ASSERT_EQ(synchronize(), BP_OK) << b.text;
  EXPECT_EQ(y.get<int64_t>(), (std::vector<int64_t>{10, 10 ^ 0x55}));
  ASSERT_EQ(b.launch(BP_OP_ADD, args, stream), BP_OK) << b.text;
  ASSERT_EQ(synchronize(), BP_OK) << b.text;
  EXPECT_EQ(y.get<int64_t>(), (std::vector<int64_t>{10, 10}));
  ASSERT_EQ(fail_next(BP_TEST_FAULT_DATA, BP_ABORTED), BP_OK);
  ASSERT_EQ(b.launch(BP_OP_ADD, args, stream), BP_OK) << b.text;
  EXPECT_EQ(synchronize(), BP_ABORTED);
}

TEST_P(Faults, StayWithTheStreamBehindItsHandles) {
  void* native = nullptr;
  ASSERT_EQ(b.streams->native_handle(b.streams->self, stream, &native), BP_OK) << b.text;
  bp_stream* second = nullptr;
  ASSERT_EQ(b.streams->wrap_native(b.streams->self, b.device, native, &second), BP_OK) << b.text;
  ASSERT_EQ(faults->fail_next(faults->self, second, BP_TEST_FAULT_DATA, BP_ABORTED), BP_OK);
  ASSERT_EQ(b.streams->destroy(b.streams->self, second), BP_OK);
  ASSERT_EQ(fill(1), BP_OK);
  EXPECT_EQ(synchronize(), BP_ABORTED);
}

TEST_P(Faults, FailTheAllocationThatWasOrdered) {
  ASSERT_EQ(faults->fail_allocation(faults->self, b.device, 2), BP_OK);
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = kSize};
  for (int i = 0; i < 4; ++i) {
    bp_buffer* made = nullptr;
    EXPECT_EQ(b.allocator->allocate(b.allocator->self, b.device, &desc, &made),
              i == 2 ? BP_OUT_OF_MEMORY : BP_OK)
        << i;
    EXPECT_EQ(made == nullptr, i == 2);
    EXPECT_EQ(b.allocator->deallocate(b.allocator->self, made, nullptr), BP_OK);
  }
}

TEST_P(Faults, CannotLoseTheDevice) {
  EXPECT_EQ(faults->lose_device(faults->self, b.device), BP_UNSUPPORTED);
  EXPECT_EQ(b.text, "lose_device: the processors of the host are never lost");
  EXPECT_EQ(fail_next(9, BP_INTERNAL), BP_INVALID_ARGUMENT);
  EXPECT_EQ(faults->fail_next(faults->self, nullptr, BP_TEST_FAULT_DATA, BP_INTERNAL),
            BP_INVALID_ARGUMENT);
}

TEST(Guard, KeepsTheDeviceOfEachThread) {
  TestBackend b(BACKEND_PATH);
  ASSERT_NE(b.guard, nullptr);
  bp_device* previous = b.device;
  ASSERT_EQ(b.guard->exchange(b.guard->self, b.device, &previous), BP_OK) << b.text;
  EXPECT_EQ(previous, nullptr);
  std::thread([&] {
    bp_device* theirs = b.device;
    EXPECT_EQ(b.guard->exchange(b.guard->self, nullptr, &theirs), BP_OK) << b.text;
    EXPECT_EQ(theirs, nullptr);
  }).join();
  ASSERT_EQ(b.guard->exchange(b.guard->self, nullptr, &previous), BP_OK) << b.text;
  EXPECT_EQ(previous, b.device);
}

TEST(Guard, SaysWhetherTheHostHasHandles) {
  TestBackend b(BACKEND_PATH);
  uint32_t is_initialized = 2;
  const auto ask = [&] {
    EXPECT_EQ(b.guard->is_initialized(b.guard->self, b.device, &is_initialized), BP_OK) << b.text;
    return is_initialized;
  };
  EXPECT_EQ(ask(), 0u);
  bp_buffer* const buffer = b.make_buffer(kSize);
  EXPECT_EQ(ask(), 1u);
  ASSERT_EQ(b.allocator->deallocate(b.allocator->self, buffer, nullptr), BP_OK);
  EXPECT_EQ(ask(), 0u);
}

}  // namespace
}  // namespace bp
