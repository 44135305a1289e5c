// Tests calls of all devices of a card while one of them ends.
#include "backplane/shell/attached.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "backends/shell/in_time.hpp"

namespace bp {
namespace {

struct Device {
  int call_count = 0;
};

class Attached : public testing::Test {
 protected:
  Attached() {
    set.add(&first);
    set.add(&second);
  }
  void call_all() {
    set.for_each([](Device& device) { ++device.call_count; });
  }

  Device first, second;
  AttachedDevices<Device> set;
};

TEST_F(Attached, AreCalledUntilTheyAreRemoved) {
  call_all();
  set.remove(&first);
  set.remove(&first);
  call_all();
  EXPECT_EQ(first.call_count, 1);
  EXPECT_EQ(second.call_count, 2);
}

TEST_F(Attached, AreNotCalledIfAnEarlierCallRemovedThem) {
  set.for_each([&](Device& device) {
    ++device.call_count;
    std::thread([&] { set.remove(&second); }).join();  // No other device is waited for.
  });
  EXPECT_EQ(first.call_count, 1);
  EXPECT_EQ(second.call_count, 0);
}

TEST_F(Attached, AreRemovedAfterTheCallsOfOtherThreads) {
  std::atomic<bool> is_removed = false;
  std::thread other;
  set.for_each([&](Device& device) {
    if (&device != &first) return;
    other = std::thread([&] {
      set.remove(&first);
      is_removed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(is_removed);
  });
  other.join();
  EXPECT_TRUE(is_removed);
}

TEST_F(Attached, AreRemovedByACallOfTheirOwn) {
  in_time([&] {
    set.for_each([&](Device& device) {
      set.remove(&device);
      ++device.call_count;
    });
  });
  call_all();
  EXPECT_EQ(first.call_count, 1);
  EXPECT_EQ(second.call_count, 1);
}

TEST_F(Attached, AreRemovedAfterACallThatThrew) {
  EXPECT_THROW(set.for_each([](Device&) { throw std::runtime_error("lost"); }), std::runtime_error);
  in_time([&] { set.remove(&first); });
}

}  // namespace
}  // namespace bp
