// Tests points, the order of work in queues, and their threads. Each test of `Queues` runs with an
// inline queue and with one that is not inline.
#include "backends/shell/queue_test.hpp"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <latch>
#include <string>
#include <thread>

namespace bp {
namespace {

INSTANTIATE_TEST_SUITE_P(, Queues, testing::Bool(),
                         [](const auto& test) { return test.param ? "Inline" : "Threaded"; });

// ---- Points -------------------------------------------------------------------------------------

TEST(Point, CompletesOnceAndKeepsTheFirstOutcome) {
  Point point(false);
  EXPECT_FALSE(point.is_complete());
  EXPECT_TRUE(point.complete({BP_ABORTED, "first"}));
  EXPECT_FALSE(point.complete({BP_INTERNAL, "second"}));
  EXPECT_TRUE(point.is_complete());
  EXPECT_EQ(point.outcome().status, BP_ABORTED);
  EXPECT_EQ(point.outcome().text, "first");
  EXPECT_EQ(point.time_ns(), 0) << "nobody asked for the time";
}

TEST(Point, EndsAWaitWhenItIsCompleteOrTimeHasPassed) {
  Point point(false);
  EXPECT_FALSE(point.wait(0));
  EXPECT_FALSE(point.wait(kShort));
  std::thread signaller([&] {
    let_time_pass();
    EXPECT_TRUE(point.complete({}));
  });
  EXPECT_TRUE(point.wait(kForever));
  signaller.join();
  EXPECT_TRUE(point.wait(0));
  EXPECT_TRUE(point.wait(kLong));
}

TEST(Point, TellsTheTimeIfItIsTimed) {
  Point first(true), second(true);
  EXPECT_TRUE(first.complete({}));
  EXPECT_TRUE(second.complete({}));
  EXPECT_GT(first.time_ns(), 0);
  EXPECT_GE(second.time_ns(), first.time_ns());
}

// ---- Order and waits ----------------------------------------------------------------------------

TEST_P(Queues, RunWorkInTheOrderOfSubmission) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(note(*closed, i), BP_OK);
  EXPECT_EQ(read(), Numbers{}) << "the gate is shut";
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_EQ(read(), numbers_below(100));
}

TEST_P(Queues, AreIdleWhenAllWorkHasEnded) {
  EXPECT_TRUE(queue->is_idle());
  EXPECT_TRUE(queue->wait(0)) << "nothing was submitted";
  EXPECT_FALSE(closed->is_idle());
  EXPECT_FALSE(closed->wait(0));
  EXPECT_FALSE(closed->wait(kShort));
  std::thread signaller([&] {
    let_time_pass();
    open();
  });
  EXPECT_TRUE(closed->wait(kForever));
  signaller.join();
  EXPECT_TRUE(closed->is_idle());
  EXPECT_TRUE(closed->wait(0));
}

TEST_F(QueueTest, AreWaitedForTogetherWithATimeout) {
  const auto queue = make(false), parked = make(false);
  const auto gate = std::make_shared<Point>(false);
  const auto block = std::make_shared<Block>();
  EXPECT_EQ(parked->wait_for(gate), BP_OK);
  EXPECT_TRUE(executor.wait_idle(kLong)) << "a queue that waits for a point does not run";
  EXPECT_EQ(queue->submit([block] { (*block)(); }), BP_OK);
  block->wait_until_it_runs();
  EXPECT_FALSE(executor.wait_idle(0));
  EXPECT_FALSE(executor.wait_idle(kShort));
  block->end();
  EXPECT_TRUE(executor.wait_idle(kLong));
  EXPECT_TRUE(gate->complete({}));
}

TEST_P(Queues, RunInTheCallerOnlyWhatTheyMay) {
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id place{};
  const auto find_place = [&] { place = std::this_thread::get_id(); };
  EXPECT_EQ(queue->submit(find_place), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(place == here, GetParam());
  EXPECT_EQ(queue->submit_always([&](const Outcome&) { find_place(); }, false), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(place == here, GetParam());
  EXPECT_EQ(queue->submit_always([&](const Outcome&) { find_place(); }, true), BP_OK);
  EXPECT_EQ(place, here) << "the queue was idle";
  EXPECT_EQ(closed->submit(find_place), BP_OK);
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_NE(place, here) << "the queue was not idle";
}

TEST_P(Queues, RunWhatATaskSubmitsBehindTheTask) {
  const auto outer = [&] {
    EXPECT_EQ(note(*queue, 2), BP_OK);
    write(1);
  };
  EXPECT_EQ(queue->submit(outer), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_TRUE(queue->wait(kLong)) << "the first wait may have begun before the task submitted";
  EXPECT_EQ(read(), (Numbers{1, 2}));
}

TEST_P(Queues, StartWorkBehindWhatAnEventOfAnotherQueueCaptured) {
  const auto event = std::make_shared<Point>(false);
  EXPECT_EQ(queue->wait_for(event), BP_OK);
  EXPECT_EQ(note(*queue, 2), BP_OK);
  EXPECT_EQ(note(*closed, 1), BP_OK);
  const auto record = [event](const Outcome& before) { event->complete(before); };
  EXPECT_EQ(closed->submit_always(record, true), BP_OK);
  EXPECT_FALSE(queue->wait(kShort));
  EXPECT_FALSE(event->is_complete());
  open();
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(read(), (Numbers{1, 2}));
}

TEST_P(Queues, GoOnAtOnceBehindAPointThatIsComplete) {
  open();
  EXPECT_EQ(queue->wait_for(gate), BP_OK);
  EXPECT_TRUE(queue->is_idle());
  EXPECT_EQ(note(*queue, 1), BP_OK);
  EXPECT_TRUE(queue->wait(kLong));
  EXPECT_EQ(read(), Numbers{1});
}

TEST_P(Queues, ReleaseWhatATaskHoldsBeforeAWaitEnds) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  EXPECT_EQ(closed->submit([held = std::move(held)] {}), BP_OK);
  EXPECT_FALSE(watch.expired());
  open();
  EXPECT_TRUE(closed->wait(kLong));
  EXPECT_TRUE(watch.expired());
}

TEST_P(Queues, LiveUntilTheirWorkHasEnded) {
  auto released = make(GetParam());
  const std::weak_ptr<Queue> watch = released;
  EXPECT_EQ(released->wait_for(gate), BP_OK);
  EXPECT_EQ(note(*released, 1), BP_OK);
  EXPECT_EQ(call_back(*released), BP_OK);
  executor.wait_idle();
  released.reset();
  ASSERT_FALSE(watch.expired());
  open();
  executor.wait_idle();
  EXPECT_EQ(read(), (Numbers{1, BP_OK}));
  EXPECT_TRUE(watch.expired());
}

// ---- Threads ------------------------------------------------------------------------------------

TEST_P(Queues, KeepTheOrderOfEachOfManyThreads) {
  constexpr int kThreads = 4, kTasks = 5000;
  std::vector<std::pair<int, int>> ran;  // It needs no lock: tasks run one at a time.
  std::latch start(kThreads);
  const auto submit_tasks = [&](int thread) {
    start.arrive_and_wait();
    for (int i = 0; i < kTasks; ++i) {
      EXPECT_EQ(queue->submit([&ran, thread, i] { ran.emplace_back(thread, i); }), BP_OK);
      if (i % 100 == 0) {
        EXPECT_TRUE(queue->wait(kLong));
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(submit_tasks, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(queue->wait(kLong));
  int next[kThreads] = {};
  for (const auto& [thread, i] : ran) EXPECT_EQ(i, next[thread]++);
  for (const int count : next) EXPECT_EQ(count, kTasks);
}

TEST_P(Queues, LoseNoWakeUpOfAPointThatCompletesMeanwhile) {
  for (int round = 0; round < 500; ++round) {
    const auto point = std::make_shared<Point>(false);
    std::thread signaller([&] { EXPECT_TRUE(point->complete({})); });
    EXPECT_EQ(queue->wait_for(point), BP_OK);
    EXPECT_EQ(note(*queue, round), BP_OK);
    signaller.join();
    EXPECT_TRUE(queue->wait(kLong));
  }
  EXPECT_EQ(read(), numbers_below(500));
}

TEST_F(QueueTest, WaitsForWhatAnotherThreadRunsInline) {
  const std::shared_ptr<Queue> queue = make(true);
  Block block;
  std::thread owner([&] { EXPECT_EQ(queue->submit([&] { block(); }), BP_OK); });
  block.wait_until_it_runs();
  EXPECT_FALSE(queue->is_idle());
  EXPECT_FALSE(queue->wait(0));
  EXPECT_FALSE(queue->wait(kShort));
  EXPECT_EQ(note(*queue, 1), BP_OK);
  EXPECT_EQ(read(), Numbers{}) << "it ran beside the task before it";
  block.end();
  EXPECT_TRUE(queue->wait(kLong));
  owner.join();
  EXPECT_EQ(read(), Numbers{1});
}

TEST_F(QueueTest, RunsSideBySideWithOthers) {
  const std::shared_ptr<Queue> busy = make(false), other = make(false);
  Block block;
  EXPECT_EQ(busy->submit([&] { block(); }), BP_OK);
  block.wait_until_it_runs();
  EXPECT_EQ(note(*other, 1), BP_OK);
  EXPECT_TRUE(other->wait(kLong));
  block.end();
  EXPECT_TRUE(busy->wait(kLong));
}

// Waits until a thread of this process sleeps, as one does that waits for a queue.
void wait_until_it_sleeps(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (char state = 0; state != 'S';) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t name_end = text.rfind(')');  // The state follows the name.
    ASSERT_LT(name_end + 2, text.size()) << path;
    state = text[name_end + 2];
  }
}

TEST_F(QueueTest, WakesEachThreadWhenTheWorkThatItAwaitsHasEnded) {
  const std::shared_ptr<Queue> queue = make(false);
  Block blocks[3];
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (Block& block : blocks) {
    EXPECT_EQ(queue->submit([&] { block(); }), BP_OK);
    std::promise<pid_t> begun;
    threads.emplace_back([&] {
      begun.set_value(gettid());
      EXPECT_TRUE(queue->wait(kLong));
      ++ended;
    });
    wait_until_it_sleeps(begun.get_future().get());  // Each waits for the work so far, no more.
    EXPECT_FALSE(queue->wait(kShort));               // This wait leaves again.
  }
  EXPECT_EQ(ended, 0);
  for (size_t i = 0; i < std::size(blocks); ++i) {
    blocks[i].end();
    threads[i].join();
  }
  EXPECT_EQ(ended, 3);
}

// An executor with one thread.
class OneThread : public QueueTest {
 protected:
  ~OneThread() override { single.stop(); }

  Executor single{1};
  std::shared_ptr<Queue> first = std::make_shared<Queue>(host, single, false);
  std::shared_ptr<Queue> second = std::make_shared<Queue>(host, single, false);
};

TEST_F(OneThread, IsNotHeldByAQueueThatWaits) {
  const auto gate = std::make_shared<Point>(false);
  EXPECT_EQ(first->wait_for(gate), BP_OK);
  EXPECT_EQ(note(*first, 2), BP_OK);
  EXPECT_EQ(note(*second, 1), BP_OK);
  single.wait_idle();
  EXPECT_EQ(read(), Numbers{1});
  EXPECT_TRUE(gate->complete({}));
  EXPECT_TRUE(first->wait(kLong));
  EXPECT_EQ(read(), (Numbers{1, 2}));
}

TEST_F(OneThread, GivesAQueueItsTurnBeforeALongOneHasEnded) {
  const auto busy = std::make_shared<Queue>(host, single, false);
  Block block;
  EXPECT_EQ(busy->submit([&] { block(); }), BP_OK);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(note(*first, i), BP_OK);
  EXPECT_EQ(note(*second, 100), BP_OK);
  block.end();
  single.wait_idle();
  EXPECT_EQ(read().size(), 101u);
  EXPECT_EQ(read().back(), 99);
}

TEST_F(OneThread, StartsNoThreadBeforeTheFirstWork) {
  const auto count = [] {
    using Threads = std::filesystem::directory_iterator;
    return std::distance(Threads("/proc/self/task"), Threads());
  };
  const auto before = count();
  Executor four(4);
  const auto queue = std::make_shared<Queue>(host, four, false);
  EXPECT_TRUE(queue->wait(kForever));
  four.wait_idle();
  EXPECT_LE(count(), before) << "a process that only looks may fork";
}

}  // namespace
}  // namespace bp
