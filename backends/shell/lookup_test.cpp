// Tests the search for what is behind handles, with devices that are none.
#include "backplane/shell/lookup.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bp {
namespace {

struct Card {
  bool is_lost() const { return lost; }
  uint64_t generation() const { return its_generation; }
  std::string loss() const { return why; }

  bool lost = false;
  uint64_t its_generation = 1;
  std::string why;
};

// A device that is never lost.
struct Rock {};

struct Stream : MortalHandle<Card> {
  static constexpr uint32_t kMagic = 3;
  explicit Stream(Card& card) : MortalHandle(kMagic, card) {}
};

struct Pebble : DeviceHandle<Rock> {
  static constexpr uint32_t kMagic = 4;
  explicit Pebble(Rock& rock) : DeviceHandle(kMagic, rock) {}
};

struct Lead : DeviceHandle<Card> {
  static constexpr uint32_t kMagic = 5;
  explicit Lead(Card& card) : DeviceHandle(kMagic, card) {}
};

// Returns the text with which `call` refuses, or "" if it returns.
template <typename Call>
std::string refusal_of(bp_status status, const Call& call) {
  try {
    static_cast<void>(call());
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), status);
    return e.what();
  }
  return "";
}

template <typename Object>
std::string refusal_of(bp_status status, Object& object) {
  return refusal_of(status, [&] {
    return &live_object_of<Object>(reinterpret_cast<bp_stream*>(&object), "flush", "stream");
  });
}

TEST(Lookup, RefusesAHandleOfAnotherKindOfObject) {
  Card card;
  Rock rock;
  Stream stream(card);
  Pebble pebble(rock);
  auto* const handle = reinterpret_cast<bp_stream*>(&stream);
  EXPECT_EQ(object_of<Stream>(handle), &stream);
  EXPECT_EQ(&live_object_of<Stream>(handle, "flush", "stream"), &stream);
  for (bp_stream* const wrong :
       {static_cast<bp_stream*>(nullptr), reinterpret_cast<bp_stream*>(&pebble)}) {
    EXPECT_EQ(object_of<Stream>(wrong), nullptr);
    const auto look = [&] { return &live_object_of<Stream>(wrong, "flush", "stream"); };
    EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, look),
              "flush: stream is NULL or not one of this backend");
  }
}

TEST(Lookup, FindsTheOnlyDeviceOfAnInstance) {
  struct Instance {
    std::unique_ptr<Rock> device = std::make_unique<Rock>();
  };
  using Devices = Cards<Instance, Rock>;
  const Instance instance;
  ASSERT_EQ(Devices::device_count(instance), 1u);
  bp_device* const handle = Devices::device_at(instance, 0);
  EXPECT_EQ(Devices::find(instance, handle), instance.device.get());
  EXPECT_EQ(&Devices::device_of(instance, handle, "copy"), instance.device.get());
  EXPECT_EQ(Devices::find(instance, nullptr), nullptr);
}

TEST(Lookup, RefusesADeviceThatIsLost) {
  struct Instance {
    std::vector<std::unique_ptr<Card>> cards;
  };
  using Devices = Cards<Instance, Card>;
  Instance instance;
  for (int k = 0; k < 2; ++k) instance.cards.push_back(std::make_unique<Card>());
  instance.cards[1]->lost = true;
  bp_device* const lost = Devices::device_at(instance, 1);
  const auto look = [&] { return &Devices::device_of(instance, lost, "copy", "peer"); };
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, look), "copy: the peer is lost until it is reset");
  EXPECT_EQ(&Devices::any_device_of(instance, lost, "copy"), instance.cards[1].get());
  EXPECT_EQ(&Devices::device_of(instance, Devices::device_at(instance, 0), "copy"),
            instance.cards[0].get());
}

TEST(MortalHandle, LivesAsLongAsOneGenerationOfItsDevice) {
  Card card;
  Stream stream(card);
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, stream), "");
  card.lost = true;
  card.why = ": it fell off the bus";
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, stream),
            "flush: stream belongs to a device that is lost until it is reset: it fell off the "
            "bus");
  card.lost = false;
  card.its_generation = 2;
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, stream),
            "flush: stream was made before its device was reset");
  Stream second(card);
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, second), "");
}

TEST(DeviceHandle, IsRefusedOnlyWhileItsDeviceIsLost) {
  Card card;
  Rock rock;
  Lead lead(card);
  Pebble pebble(rock);
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, lead), "");
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, pebble), "");
  card.lost = true;
  EXPECT_EQ(refusal_of(BP_DEVICE_LOST, lead),
            "flush: stream belongs to a device that is lost until it is reset");
}

}  // namespace
}  // namespace bp
