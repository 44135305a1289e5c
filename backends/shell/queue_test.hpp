// A fixture for the unit tests of queues: a host, queues that end with their test, and a list of
// what ran.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backplane/shell/queue.hpp"

namespace bp {

inline constexpr uint64_t kShort = 1'000'000;      // The timeout of a wait that shall time out.
inline constexpr uint64_t kLong = 30'000'000'000;  // It passes only if work or a wake-up is lost.
inline constexpr uint64_t kForever = UINT64_MAX;
using Numbers = std::vector<int>;

inline Numbers numbers_below(int count) {
  Numbers numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Gives other threads time to begin a wait. A test also passes if they have not begun it.
inline void let_time_pass() { EXPECT_FALSE(Point(false).wait(kShort)); }

// A task that lasts until the test ends it.
struct Block {
  void operator()() {
    EXPECT_TRUE(begun.complete({}));
    EXPECT_TRUE(may_end.wait(kLong));
  }
  void wait_until_it_runs() { EXPECT_TRUE(begun.wait(kLong)); }
  void end() { EXPECT_TRUE(may_end.complete({})); }

  Point begun{false}, may_end{false};
};

class QueueTest : public testing::Test {
 protected:
  QueueTest() {
    host.self = this;
    host.set_error = set_error;
  }
  // Ends the queues as a backend does when it shuts down.
  ~QueueTest() override {
    executor.wait_idle();
    for (const std::weak_ptr<Queue>& queue : queues) {
      if (const std::shared_ptr<Queue> left = queue.lock()) left->abandon();
    }
    executor.wait_idle();
    executor.stop();
  }

  std::shared_ptr<Queue> make(bool is_inline) {
    auto queue = std::make_shared<Queue>(host, executor, is_inline);
    queues.push_back(queue);
    return queue;
  }

  void write(int number) {
    const std::lock_guard lock(mutex);
    written.push_back(number);
  }
  Numbers read() {
    const std::lock_guard lock(mutex);
    return written;
  }

  // Submits a task that appends `number` to `written`.
  bp_status note(Queue& queue, int number) {
    return queue.submit([this, number] { write(number); });
  }
  static bp_status throw_in(Queue& queue, bp_status status, const char* reason) {
    return queue.submit([=] { throw StatusError(status, reason); });
  }
  // Submits a callback that appends its status to `written`.
  bp_status call_back(Queue& queue) {
    return queue.submit_always([this](const Outcome& before) { write(before.status); }, false);
  }

  static bp_status set_error(void* self, bp_status status, const char* reason) {
    auto& test = *static_cast<QueueTest*>(self);
    test.text = reason;
    if (test.on_error) std::exchange(test.on_error, nullptr)();
    return status;
  }

  bp_host host{};
  std::string text;                // The latest error text. Only the test's thread gets one.
  std::function<void()> on_error;  // It runs once, when the host gets a failure.
  std::mutex mutex;                // It guards `written`.
  Numbers written;
  std::vector<std::weak_ptr<Queue>> queues;
  Executor executor{2};
};

class Queues : public QueueTest, public testing::WithParamInterface<bool> {
 protected:
  Queues() { EXPECT_EQ(closed->wait_for(gate), BP_OK); }

  void open(Outcome outcome = {}) { EXPECT_TRUE(gate->complete(std::move(outcome))); }

  const std::shared_ptr<Queue> queue = make(GetParam());
  const std::shared_ptr<Queue> closed = make(GetParam());  // It waits for open().
  const std::shared_ptr<Point> gate = std::make_shared<Point>(false);
};

}  // namespace bp
