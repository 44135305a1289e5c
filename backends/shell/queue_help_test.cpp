// Tests that threads which wait without a timeout run the work that was offered to a point.
#include <thread>

#include "backends/shell/queue_test.hpp"

namespace bp {
namespace {

using QueueHelp = QueueTest;

// Offers work that completes `point` and tells which thread ran it.
void offer_to(const std::shared_ptr<Point>& point, std::thread::id& out_thread) {
  point->offer([point, &out_thread] {
    out_thread = std::this_thread::get_id();
    EXPECT_TRUE(point->complete({}));
  });
}

TEST_F(QueueHelp, AWaitForAPointRunsItsOffer) {
  const auto point = std::make_shared<Point>(false);
  std::thread::id ran_on;
  offer_to(point, ran_on);
  EXPECT_TRUE(point->wait(kForever));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(point->take_offer(), nullptr);
}

TEST_F(QueueHelp, AWaitForAQueueRunsTheOffersInFrontOfIt) {
  const auto queue = make(false);
  const auto first = std::make_shared<Point>(false), second = std::make_shared<Point>(false);
  std::thread::id first_thread, second_thread;
  offer_to(first, first_thread);
  offer_to(second, second_thread);
  EXPECT_EQ(queue->wait_for(first), BP_OK);
  EXPECT_EQ(queue->wait_for(second), BP_OK);
  EXPECT_TRUE(queue->wait(kForever));
  EXPECT_EQ(first_thread, std::this_thread::get_id());
  EXPECT_EQ(second_thread, std::this_thread::get_id());
}

// The last point is recorded on a queue that waits for a record on another one.
TEST_F(QueueHelp, AWaitFindsOffersThroughQueues) {
  const auto near = make(false), far = make(false);
  const auto done = std::make_shared<Point>(false), between = std::make_shared<Point>(false),
             last = std::make_shared<Point>(false);
  std::thread::id ran_on;
  offer_to(done, ran_on);
  EXPECT_EQ(far->wait_for(done), BP_OK);
  const auto record = [](const std::shared_ptr<Queue>& queue, const std::shared_ptr<Point>& point) {
    point->set_source(queue);
    return queue->submit_always([point](const Outcome& before) { point->complete(before); }, true);
  };
  EXPECT_EQ(record(far, between), BP_OK);
  EXPECT_EQ(near->wait_for(between), BP_OK);
  EXPECT_EQ(record(near, last), BP_OK);
  EXPECT_TRUE(last->wait(kForever));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST_F(QueueHelp, AWaitWithATimeoutDoesNotHelp) {
  const auto point = std::make_shared<Point>(false);
  std::thread::id ran_on;
  offer_to(point, ran_on);
  EXPECT_FALSE(point->wait(kShort));
  EXPECT_EQ(ran_on, std::thread::id());
  EXPECT_TRUE(point->complete({}));
}

TEST_F(QueueHelp, AnOfferIsTakenOnceAndEndsWithItsPoint) {
  const auto point = std::make_shared<Point>(false);
  const auto held = std::make_shared<int>(0);
  point->offer([held] { ++*held; });
  point->take_offer()();
  EXPECT_EQ(point->take_offer(), nullptr);
  EXPECT_EQ(*held, 1);
  point->offer([held] { ++*held; });
  EXPECT_TRUE(point->complete({}));
  point->offer([held] { ++*held; });
  EXPECT_EQ(point->take_offer(), nullptr) << "the point was complete";
  EXPECT_EQ(held.use_count(), 1) << "an offer still holds what it needs";
}

// Two queues that wait for each other never end by themselves. A search for offers must end.
TEST_F(QueueHelp, ASearchEndsWhereQueuesWaitForEachOther) {
  const auto one = make(false), other = make(false);
  const auto of_one = std::make_shared<Point>(false), of_other = std::make_shared<Point>(false);
  of_one->set_source(one);
  of_other->set_source(other);
  EXPECT_EQ(one->wait_for(of_other), BP_OK);
  EXPECT_EQ(other->wait_for(of_one), BP_OK);
  EXPECT_FALSE(of_one->help());
  EXPECT_TRUE(of_other->complete({}));
  EXPECT_TRUE(of_one->complete({}));
}

// Waiting for a point needs no thread of the executor.
TEST_F(QueueHelp, ASubmittedWaitParksOnTheThreadOfTheCaller) {
  const auto queue = make(false);
  const auto gate = std::make_shared<Point>(false);
  EXPECT_EQ(queue->wait_for(gate), BP_OK);
  EXPECT_TRUE(executor.wait_idle(0)) << "a thread of the executor has the queue";
  EXPECT_FALSE(queue->is_idle());
  EXPECT_TRUE(gate->complete({}));
  EXPECT_TRUE(queue->is_idle());
}

}  // namespace
}  // namespace bp
