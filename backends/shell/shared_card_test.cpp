// Tests the loss and the reset of a card that the devices of several instances share.
#include "backplane/shell/shared_card.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backplane/shell/queue.hpp"

namespace bp {
namespace {

struct Device;

struct Card : SharedCard<Device> {
  void reset(Device& device);

  std::function<void()> on_renew = [] {};
};

// A device that keeps the names of the calls that it gets.
struct Device {
  explicit Device(Card& its_card) : card(its_card) { card.attach(this); }
  Device(const Device&) = delete;
  ~Device() { card.detach(this); }

  void end_work() {
    calls.push_back(card.is_lost() ? "end_work" : "end_work before the loss");
    if (on_end_work) on_end_work();
  }
  bool is_in_use() const { return has_handles; }
  void end_handles() { calls.push_back("end_handles"); }

  Card& card;
  bool has_handles = false;
  std::vector<std::string> calls;
  std::function<void()> on_end_work;
};

using Calls = std::vector<std::string>;

void Card::reset(Device& device) {
  SharedCard::reset(device, [this] { on_renew(); });
}

class ACard : public testing::Test {
 protected:
  Card card;
  Device first{card}, second{card};
};

TEST_F(ACard, EndsTheWorkOfAllDevicesWhenItIsLost) {
  EXPECT_FALSE(card.is_lost());
  card.lose();
  EXPECT_TRUE(card.is_lost());
  EXPECT_EQ(card.generation(), 0u);
  EXPECT_EQ(first.calls, Calls{"end_work"});
  EXPECT_EQ(second.calls, Calls{"end_work"});
}

TEST_F(ACard, IsRenewedByAResetAfterTheHandlesHaveEnded) {
  card.lose();
  first.calls.clear();
  second.calls.clear();
  card.on_renew = [&] {
    EXPECT_EQ(first.calls, (Calls{"end_work", "end_handles"}));
    EXPECT_TRUE(card.is_lost());
    EXPECT_EQ(card.generation(), 0u);
  };
  card.reset(first);
  EXPECT_FALSE(card.is_lost());
  EXPECT_EQ(card.generation(), 1u);
  EXPECT_EQ(second.calls, Calls{"end_work"}) << "the host keeps what other instances have";
}

TEST_F(ACard, IsNotResetWhileAnotherInstanceUsesIt) {
  first.has_handles = second.has_handles = true;
  try {
    card.reset(first);
    ADD_FAILURE() << "the reset succeeded";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_UNSUPPORTED);
    EXPECT_STREQ(
        e.what(),
        "device.reset: another instance has buffers, streams or other handles of the device");
  }
  EXPECT_FALSE(card.is_lost());
  EXPECT_EQ(first.calls, Calls{});
  second.has_handles = false;
  card.reset(first);
  EXPECT_EQ(card.generation(), 1u);
}

// An instance that shuts down detaches its device, and then stops its executor. What a loss
// scheduled meanwhile runs.
TEST_F(ACard, DetachesADeviceAfterTheLossThatAnotherThreadReports) {
  const bp_host host{};
  Executor executor;
  const auto queue = std::make_shared<Queue>(host, executor, false);
  const auto gate = std::make_shared<Point>(false);
  bp_status told = BP_OK;
  ASSERT_EQ(queue->wait_for(gate), BP_OK);
  queue->submit_always([&](const Outcome& before) { told = before.status; }, false);
  executor.wait_idle();
  std::thread shutdown;
  first.on_end_work = [&] {
    shutdown = std::thread([&] {
      card.detach(&first);
      executor.stop();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    queue->lose({.status = BP_DEVICE_LOST, .text = "the device is lost"});
  };
  card.lose();
  shutdown.join();
  EXPECT_EQ(told, BP_DEVICE_LOST);
}

}  // namespace
}  // namespace bp
