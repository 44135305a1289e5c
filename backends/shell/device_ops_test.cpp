// Tests the table of devices and the guard with fake devices.
#include "backplane/shell/device_ops.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace bp {
namespace {

struct Card {
  bp_device_properties its_properties{.heap_count = 2};
  bool is_lost = false, ends_in_time = true, is_lost_by_waiting = false, is_used = false;
  uint64_t resets = 0;
  std::string option;

  uint64_t generation() const { return resets; }
  const bp_device_properties& properties() { return its_properties; }
  bool wait(uint64_t) {
    is_lost |= is_lost_by_waiting;
    return ends_in_time;
  }
};

struct Machine {
  const bp_host* host;
  std::vector<std::unique_ptr<Card>> cards;
};

struct Traits : Cards<Machine, Card> {
  static Card& device_of(const Machine& i, bp_device* handle, const char* call) {
    Card& card = any_device_of(i, handle, call);
    if (card.is_lost) refuse(BP_DEVICE_LOST, std::string(call) + ": the device is lost");
    return card;
  }
  static void memory_info(Card&, uint64_t heap, uint64_t& free_bytes, uint64_t& total_bytes) {
    free_bytes = 10 + heap;
    total_bytes = 20 + heap;
  }
  static bool is_in_use(const Card& card) { return card.is_used; }
};

struct TraitsWithMore : Traits {
  static void reset(Card& card) {
    card.is_lost = false;
    ++card.resets;
  }
  static void set_option(Card& card, const char* key, const char* value) {
    card.option = std::string(key) + "=" + value;
  }
};

class DeviceTable : public testing::Test {
 protected:
  DeviceTable() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<DeviceTable*>(self)->text = reason;
      return status;
    };
    for (int i = 0; i < 3; ++i) machine.cards.push_back(std::make_unique<Card>());
  }

  bp_device* device(size_t index) { return Traits::device_at(machine, index); }

  bp_host host{};
  Machine machine{.host = &host, .cards = {}};
  std::string text;
  const bp_device_ops ops = DeviceOps<Traits>::table();
  const bp_device_ops more = DeviceOps<TraitsWithMore>::table();
  const bp_device_guard_ops guard = DeviceGuard<Traits>::table();
};

TEST_F(DeviceTable, FindsTheDeviceBehindAHandle) {
  EXPECT_EQ(Traits::find(machine, device(2)), machine.cards[2].get());
  EXPECT_EQ(Traits::find(machine, nullptr), nullptr);
  EXPECT_EQ(&Traits::any_device_of(machine, device(1), "copy", "peer"), machine.cards[1].get());
  try {
    Traits::any_device_of(machine, nullptr, "copy", "peer");
    FAIL() << "NULL was taken for a device";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    EXPECT_STREQ(e.what(), "copy: peer is NULL or not one of this backend");
  }
}

TEST_F(DeviceTable, HasTheOptionalSlotsOfItsTraitsAlone) {
  EXPECT_EQ(ops.reset, nullptr);
  EXPECT_EQ(ops.set_option, nullptr);
  ASSERT_NE(more.reset, nullptr);
  ASSERT_NE(more.set_option, nullptr);
  EXPECT_EQ(more.set_option(&machine, device(1), "a", "b"), BP_OK);
  EXPECT_EQ(machine.cards[1]->option, "a=b");
  EXPECT_EQ(more.set_option(&machine, device(1), "a", nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "device.set_option: value is NULL");
}

TEST_F(DeviceTable, ListsAsManyAsFitAndSaysHowManyThereAre) {
  bp_device* found[3] = {};
  uint64_t count = 0;
  EXPECT_EQ(ops.enumerate(&machine, 2, found, &count), BP_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(found[1], device(1));
  EXPECT_EQ(found[2], nullptr);
  EXPECT_EQ(ops.enumerate(&machine, 0, nullptr, &count), BP_OK);
  EXPECT_EQ(ops.enumerate(&machine, 1, nullptr, &count), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "device.enumerate: out_devices is NULL");
}

TEST_F(DeviceTable, RefusesAHeapThatTheDeviceLacks) {
  uint64_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(ops.memory_info(&machine, device(0), 1, &free_bytes, &total_bytes), BP_OK);
  EXPECT_EQ(free_bytes, 11u);
  EXPECT_EQ(total_bytes, 21u);
  EXPECT_EQ(ops.memory_info(&machine, device(0), 2, &free_bytes, &total_bytes),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "device.memory_info: heap_index is 2; 0 to 1 are allowed");
  EXPECT_EQ(free_bytes, 11u);
}

TEST_F(DeviceTable, SaysThatTheWorkDidNotEndOrThatTheDeviceWasLostMeanwhile) {
  EXPECT_EQ(ops.synchronize(&machine, device(0), 5), BP_OK);
  machine.cards[0]->ends_in_time = false;
  EXPECT_EQ(ops.synchronize(&machine, device(0), 5), BP_TIMEOUT);
  EXPECT_EQ(text, "device.synchronize: the work did not end within 5 ns");
  machine.cards[1]->is_lost_by_waiting = true;
  EXPECT_EQ(ops.synchronize(&machine, device(1), 5), BP_DEVICE_LOST);
}

TEST_F(DeviceTable, ResetsALostDevice) {
  machine.cards[2]->is_lost = true;
  const bp_device_properties* properties = nullptr;
  uint64_t generation = 7;
  EXPECT_EQ(more.properties(&machine, device(2), &properties), BP_DEVICE_LOST);
  EXPECT_EQ(more.generation(&machine, device(2), &generation), BP_OK) << text;
  EXPECT_EQ(generation, 0u);
  EXPECT_EQ(more.reset(&machine, device(2)), BP_OK);
  EXPECT_EQ(more.properties(&machine, device(2), &properties), BP_OK);
  EXPECT_EQ(more.generation(&machine, device(2), &generation), BP_OK) << text;
  EXPECT_EQ(generation, 1u);
  EXPECT_EQ(more.generation(&machine, device(2), nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "device.generation: out_generation is NULL");
}

TEST_F(DeviceTable, GuardNestsAndForgetsDevicesOfInstancesThatEnded) {
  bp_device* previous = device(2);
  EXPECT_EQ(guard.exchange(&machine, device(1), &previous), BP_OK);
  EXPECT_EQ(previous, nullptr);
  EXPECT_EQ(guard.exchange(&machine, device(0), &previous), BP_OK);
  EXPECT_EQ(previous, device(1));
  machine.cards.erase(machine.cards.begin());
  EXPECT_EQ(guard.exchange(&machine, nullptr, &previous), BP_OK);
  EXPECT_EQ(previous, nullptr);
  bp_host other = host;
  EXPECT_EQ(guard.exchange(&machine, reinterpret_cast<bp_device*>(&other), &previous),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "exchange: device is NULL or not one of this backend");
  uint32_t is_initialized = 7;
  machine.cards[0]->is_used = true;
  EXPECT_EQ(guard.is_initialized(&machine, device(0), &is_initialized), BP_OK);
  EXPECT_EQ(is_initialized, 1u);
}

}  // namespace
}  // namespace bp
