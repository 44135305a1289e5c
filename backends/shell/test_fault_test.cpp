// Tests the table of "bp.test.fault" with fake streams and devices.
#include "backplane/shell/test_fault.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace bp {
namespace {

struct Card {
  FailingAllocation allocations;
  bool is_lost = false;
};

struct Machine {
  const bp_host* host;
  std::unique_ptr<Card> card;
  std::unique_ptr<TestFaults> faults;
};

struct Traits {
  using Instance = Machine;

  static TestFaults& faults_of(bp_stream* handle, const char* call) {
    if (handle == nullptr) refuse(BP_INVALID_ARGUMENT, std::string(call) + ": stream is none");
    return *reinterpret_cast<TestFaults*>(handle);
  }
  static Card& any_device_of(const Machine& i, bp_device*, const char*) { return *i.card; }
  static Card& device_of(const Machine& i, bp_device* handle, const char* call) {
    Card& card = any_device_of(i, handle, call);
    if (card.is_lost) refuse(BP_DEVICE_LOST, std::string(call) + ": the device is lost");
    return card;
  }
  static FailingAllocation& allocations_of(Card& card) { return card.allocations; }
  static void lose(Card& card) { card.is_lost = true; }
};

class TestFaultTable : public testing::Test {
 protected:
  TestFaultTable() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<TestFaultTable*>(self)->text = reason;
      return status;
    };
  }

  bp_status fail_next(bp_test_fault_kind kind, bp_status status) {
    return ops.fail_next(&machine, reinterpret_cast<bp_stream*>(machine.faults.get()), kind,
                         status);
  }

  bp_host host{};
  Machine machine{&host, std::make_unique<Card>(), std::make_unique<TestFaults>()};
  Executor executor;
  const std::shared_ptr<Queue> queue = std::make_shared<Queue>(host, executor, true);
  std::string text;
  const bp_test_fault_ops ops = TestFaultOps<Traits>::table();
};

TEST_F(TestFaultTable, GivesEachOrderOnceAndTheLatestOne) {
  EXPECT_EQ(machine.faults->take(*queue).kind, 0u);
  EXPECT_FALSE(machine.faults->is_ordered());
  ASSERT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION, BP_OK), BP_OK);
  ASSERT_EQ(fail_next(BP_TEST_FAULT_DATA, BP_ABORTED), BP_OK);
  EXPECT_TRUE(machine.faults->is_ordered());
  const TestFault fault = machine.faults->take(*queue);
  EXPECT_EQ(fault.kind, BP_TEST_FAULT_DATA + 0u);
  EXPECT_EQ(fault.status, BP_ABORTED);
  EXPECT_EQ(machine.faults->take(*queue).kind, 0u);
  ASSERT_EQ(fail_next(BP_TEST_FAULT_DATA, BP_ABORTED), BP_OK);
  ASSERT_EQ(fail_next(0, BP_OK), BP_OK);
  EXPECT_FALSE(machine.faults->is_ordered());
  EXPECT_EQ(machine.faults->take(*queue).kind, 0u) << "the order was taken back";
}

TEST_F(TestFaultTable, KeepsTheOrderWhileTheStreamHasFailed) {
  ASSERT_EQ(fail_next(BP_TEST_FAULT_SUBMISSION, BP_ABORTED), BP_OK);
  ASSERT_EQ(queue->submit([] { throw StatusError(BP_TIMEOUT, "failed before"); }), BP_OK);
  EXPECT_EQ(machine.faults->take(*queue).kind, 0u);
  queue->clear_failure();
  EXPECT_EQ(machine.faults->take(*queue).kind, BP_TEST_FAULT_SUBMISSION + 0u);
}

TEST_F(TestFaultTable, RefusesWhatIsNoFailure) {
  EXPECT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION + 1, BP_ABORTED), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fail_next: kind is 4; 0 and the BP_TEST_FAULT_* values are allowed");
  EXPECT_EQ(fail_next(BP_TEST_FAULT_DATA, BP_OK), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fail_next: status is 0, and BP_OK belongs to kind 0 and corruption alone");
  EXPECT_EQ(fail_next(BP_TEST_FAULT_CORRUPTION, BP_ABORTED), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.fail_next(&machine, nullptr, 0, BP_OK), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fail_next: stream is none");
}

TEST_F(TestFaultTable, FailsOneAllocation) {
  FailingAllocation& allocations = machine.card->allocations;
  allocations.count();
  ASSERT_EQ(ops.fail_allocation(&machine, nullptr, 1), BP_OK);
  allocations.count();
  EXPECT_THROW(allocations.count(), StatusError);
  allocations.count();
  ASSERT_EQ(ops.fail_allocation(&machine, nullptr, 0), BP_OK);
  ASSERT_EQ(ops.fail_allocation(&machine, nullptr, UINT64_MAX), BP_OK);
  allocations.count();
}

TEST_F(TestFaultTable, LosesADeviceAlsoTwice) {
  EXPECT_EQ(ops.lose_device(&machine, nullptr), BP_OK);
  EXPECT_TRUE(machine.card->is_lost);
  EXPECT_EQ(ops.lose_device(&machine, nullptr), BP_OK);
  EXPECT_EQ(ops.fail_allocation(&machine, nullptr, 0), BP_DEVICE_LOST);
}

TEST(TestFaultFailures, SayWhetherQueuedWorkRuns) {
  EXPECT_THROW(throw_test_fault({BP_TEST_FAULT_DATA, BP_ABORTED}), DataFailure);
  try {
    throw_test_fault({BP_TEST_FAULT_SUBMISSION, BP_ABORTED});
  } catch (const DataFailure&) {
    FAIL() << "what is queued would run";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_ABORTED);
  }
}

}  // namespace
}  // namespace bp
