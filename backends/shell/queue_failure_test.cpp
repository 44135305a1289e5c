// Tests how queues fail, and what runs after a failure. Each test runs with an inline queue and
// with one that is not inline.
#include <new>
#include <stdexcept>

#include "backends/shell/in_time.hpp"
#include "backends/shell/queue_test.hpp"

namespace bp {
namespace {

class QueueFailures : public Queues {
 protected:
  // Queues a data failure, which it clears, then a wait that never ends, and then a note of 1.
  void wait_behind_a_cleared_data_failure() {
    const auto never = std::make_shared<Point>(false);
    EXPECT_EQ(closed->submit([] { throw DataFailure(BP_DATA_FAILURE, "an index"); }), BP_OK);
    // The task may still use the block when this function returns.
    const auto block = std::make_shared<Block>();
    EXPECT_EQ(closed->submit([block] { (*block)(); }), BP_OK);
    EXPECT_EQ(closed->wait_for(never), BP_OK);
    EXPECT_EQ(note(*closed, 1), BP_OK);
    open();
    block->wait_until_it_runs();
    closed->clear_failure();
    block->end();
  }
};

INSTANTIATE_TEST_SUITE_P(, QueueFailures, testing::Bool(),
                         [](const auto& test) { return test.param ? "Inline" : "Threaded"; });

TEST_P(QueueFailures, KeepTheFirstFailureUntilItIsCleared) {
  EXPECT_EQ(throw_in(*closed, BP_ABORTED, "the first"), BP_OK);
  const auto fail_too = [](const Outcome&) { throw StatusError(BP_INTERNAL, "the second"); };
  EXPECT_EQ(closed->submit_always(fail_too, false), BP_OK);
  EXPECT_EQ(note(*closed, 1), BP_OK) << "nothing has failed yet";
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_TRUE(closed->has_failed());
  EXPECT_EQ(closed->surface(), BP_ABORTED);
  EXPECT_EQ(text, "the first");
  text.clear();
  EXPECT_EQ(closed->admit(), BP_STREAM_FAILED);
  EXPECT_EQ(note(*closed, 2), BP_STREAM_FAILED);
  EXPECT_EQ(text, "the stream has failed: the first");
  EXPECT_EQ(closed->wait_for(gate), BP_STREAM_FAILED);
  EXPECT_EQ(closed->surface(), BP_ABORTED) << "it does not end by being told";
  closed->clear_failure();
  EXPECT_FALSE(closed->has_failed());
  EXPECT_EQ(closed->surface(), BP_OK);
  EXPECT_EQ(closed->admit(), BP_OK);
  EXPECT_EQ(note(*closed, 3), BP_OK);
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), Numbers{3});
}

TEST_P(QueueFailures, TellAHostThatCallsTheQueueMeanwhile) {
  const auto ended = std::make_shared<Point>(false);
  EXPECT_TRUE(ended->complete({}));
  const auto call_back = [this] {
    EXPECT_EQ(queue->surface(), BP_ABORTED);
    EXPECT_TRUE(queue->wait(kLong));
    EXPECT_EQ(note(*queue, 1), BP_STREAM_FAILED);
    EXPECT_EQ(queue->submit_always([this](const Outcome&) { write(2); }, false), BP_OK);
    EXPECT_TRUE(queue->wait(kLong));
  };
  EXPECT_EQ(throw_in(*queue, BP_ABORTED, "why"), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  on_error = call_back;
  in_time([&] { EXPECT_EQ(note(*queue, 1), BP_STREAM_FAILED); });
  on_error = call_back;
  in_time([&] { EXPECT_EQ(queue->wait_for(ended), BP_STREAM_FAILED); });
  on_error = call_back;
  in_time([&] { EXPECT_EQ(queue->surface(), BP_ABORTED); });
  EXPECT_FALSE(on_error) << "the host was not told";
  EXPECT_EQ(read(), (Numbers{2, 2, 2}));
}

TEST_P(QueueFailures, RunNothingThatStandsBehindAFailureThatWasCleared) {
  Block block;
  EXPECT_EQ(throw_in(*closed, BP_ABORTED, "cleared"), BP_OK);
  EXPECT_EQ(closed->submit_always([&](const Outcome&) { block(); }, false), BP_OK);
  EXPECT_EQ(note(*closed, 1), BP_OK);
  EXPECT_EQ(closed->wait_for(std::make_shared<Point>(false)), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  open();
  block.wait_until_it_runs();
  closed->clear_failure();
  EXPECT_EQ(note(*closed, 2), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  block.end();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), (Numbers{BP_ABORTED, 2, BP_OK}));
}

TEST_P(QueueFailures, TellKindsOfExceptionsApart) {
  const auto ends_in = [&](auto task, bp_status status, const char* reason) {
    EXPECT_EQ(queue->submit(task), BP_OK);
    EXPECT_TRUE(queue->wait(kLong));
    EXPECT_EQ(queue->surface(), status);
    EXPECT_EQ(text, reason);
    queue->clear_failure();
  };
  ends_in([] { throw StatusError(BP_UNSUPPORTED, "a status"); }, BP_UNSUPPORTED, "a status");
  ends_in([] { throw std::bad_alloc(); }, BP_OUT_OF_MEMORY, "out of host memory");
  ends_in([] { throw std::runtime_error("a reason"); }, BP_INTERNAL, "a reason");
  ends_in([] { throw 7; }, BP_INTERNAL, "unknown exception");
}

TEST_P(QueueFailures, RunWhatWasQueuedBehindADataFailureAndNothingLater) {
  EXPECT_EQ(closed->submit([] { throw DataFailure(BP_DATA_FAILURE, "an index"); }), BP_OK);
  EXPECT_EQ(note(*closed, 100), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(note(*closed, 101), BP_STREAM_FAILED);
  EXPECT_EQ(text, "the stream has failed: an index");
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), (Numbers{100, BP_DATA_FAILURE}));
}

TEST_P(QueueFailures, FailWithThePointThatTheyWaitFor) {
  EXPECT_EQ(note(*closed, 1), BP_OK);
  open({BP_ABORTED, "carried"});
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(closed->surface(), BP_ABORTED);
  EXPECT_EQ(text, "carried");
  EXPECT_EQ(queue->wait_for(gate), BP_OK) << "the wait itself was accepted";
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(note(*queue, 2), BP_STREAM_FAILED);
  EXPECT_EQ(read(), Numbers{});
}

TEST_P(QueueFailures, TakeADataFailureFromAPointAsOne) {
  EXPECT_EQ(note(*closed, 1), BP_OK);
  open({BP_INTERNAL, "carried", true});
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(note(*closed, 2), BP_STREAM_FAILED);
  EXPECT_EQ(read(), Numbers{1});
}

TEST_P(QueueFailures, CallBackOnceAlsoBehindAFailure) {
  EXPECT_EQ(call_back(*closed), BP_OK);
  EXPECT_EQ(throw_in(*closed, BP_ABORTED, "before the callbacks"), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(call_back(*closed), BP_OK) << "a queue that has failed still takes callbacks";
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), (Numbers{BP_OK, BP_ABORTED, BP_ABORTED}));
}

TEST_P(QueueFailures, WaitForNothingOnceTheyAreLost) {
  EXPECT_EQ(note(*closed, 1), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  executor.wait_idle();
  closed->lose({BP_DEVICE_LOST, "the device is gone"});
  EXPECT_TRUE(closed->wait(kLong)) << "nobody opened the gate";
  EXPECT_EQ(note(*closed, 2), BP_DEVICE_LOST);
  EXPECT_EQ(text, "the device is gone");
  EXPECT_EQ(read(), Numbers{BP_DEVICE_LOST});
  EXPECT_EQ(throw_in(*queue, BP_ABORTED, "before it was lost"), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  queue->lose({BP_DEVICE_LOST, "the device is gone"});
  EXPECT_EQ(queue->surface(), BP_DEVICE_LOST) << "a loss counts more than what was first";
}

TEST_P(QueueFailures, AbortWhatWaitsWhenTheyAreAbandoned) {
  EXPECT_EQ(note(*closed, 1), BP_OK);
  EXPECT_EQ(call_back(*closed), BP_OK);
  executor.wait_idle();
  closed->abandon();
  EXPECT_TRUE(closed->wait(kLong)) << "nobody opened the gate";
  EXPECT_EQ(closed->surface(), BP_ABORTED);
  EXPECT_NE(text.find("shut down"), std::string::npos) << text;
  queue->abandon();
  EXPECT_EQ(note(*queue, 2), BP_OK) << "it waits for nothing";
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(read(), (Numbers{BP_ABORTED, 2}));
}

TEST_P(QueueFailures, EndAWaitBehindAClearedDataFailureWithALoss) {
  wait_behind_a_cleared_data_failure();
  closed->lose({BP_DEVICE_LOST, "the device is gone"});
  EXPECT_TRUE(closed->wait(kLong)) << "the loss does not end the wait";
  EXPECT_EQ(read(), Numbers{});
}

TEST_P(QueueFailures, AbortWorkBehindAnAbandonedWaitAndAClearedDataFailure) {
  wait_behind_a_cleared_data_failure();
  closed->abandon();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), Numbers{});
}

TEST_P(QueueFailures, StopQueuedWorkWhereAnotherStandsBehindADataFailure) {
  EXPECT_EQ(closed->submit([] { throw DataFailure(BP_DATA_FAILURE, "an index"); }), BP_OK);
  EXPECT_EQ(throw_in(*closed, BP_ABORTED, "no data"), BP_OK);
  EXPECT_EQ(note(*closed, 1), BP_OK);
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), Numbers{});
}

TEST_P(QueueFailures, StopQueuedWorkWhereACarriedOneStandsBehindADataFailure) {
  const auto other = std::make_shared<Point>(false);
  EXPECT_EQ(closed->submit([] { throw DataFailure(BP_DATA_FAILURE, "an index"); }), BP_OK);
  EXPECT_EQ(closed->wait_for(other), BP_OK);
  EXPECT_EQ(note(*closed, 1), BP_OK);
  open();
  other->complete({BP_ABORTED, "did not run"});
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), Numbers{});
}

}  // namespace
}  // namespace bp
