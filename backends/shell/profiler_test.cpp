// Tests the profiler of an instance, and its records of tasks, with a device of which nothing runs.
#include "backplane/shell/profiler.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backplane/shell/lookup.hpp"

namespace bp {
namespace {

struct Line;

struct Card {
  static const Line* handle_of(const Line* line) { return line; }

  mutable int64_t ticks = 100;
};

struct Line {
  Card* device;
};

struct Machine : HostedInstance {
  std::unique_ptr<Card> device = std::make_unique<Card>();
  Hooks hooks;
  std::unique_ptr<Profiler> profiler;
  bp_profiler_ops profiling{};
};

struct Ticking : Cards<Machine, Card> {
  static int64_t now_ns(const Card& card) { return card.ticks++; }
};

class ProfilerOfAnInstance : public testing::Test {
 protected:
  ProfilerOfAnInstance() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<ProfilerOfAnInstance*>(self)->text = reason;
      return status;
    };
    offer_profiler<Ticking>(machine);
  }

  bp_status start(bp_device* device, const std::vector<bp_activity_kind>& kinds = {}) {
    const auto sink = [](void* self, const bp_activity* activity) {
      static_cast<ProfilerOfAnInstance*>(self)->records.push_back(*activity);
    };
    const bp_profile_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_PROFILE_DESC,
                               .sink = sink,
                               .user_data = this,
                               .kind_count = kinds.size(),
                               .kinds = kinds.data()};
    return ops.start(ops.self, device, &desc);
  }

  void run(const WorkName& work) {
    recorded(*machine.profiler, line, work, [this] { ++runs; })();
  }

  bp_host host{};
  std::string text;
  Machine machine{{&host}};
  const bp_profiler_ops& ops = machine.profiling;
  bp_device* const card = Ticking::device_at(machine, 0);
  Line line{machine.device.get()};
  std::vector<bp_activity> records;
  int runs = 0;
};

TEST_F(ProfilerOfAnInstance, RecordsTheWorkOfAStream) {
  EXPECT_FALSE(machine.hooks.is_recording());
  ASSERT_EQ(start(card), BP_OK) << text;
  EXPECT_TRUE(machine.hooks.is_recording());
  run({BP_ACTIVITY_COPY, "copy", 8, 7});
  ASSERT_EQ(ops.stop(ops.self, card, UINT64_MAX), BP_OK) << text;
  EXPECT_FALSE(machine.hooks.is_recording());
  EXPECT_EQ(runs, 1);
  ASSERT_EQ(records.size(), 1u);
  const bp_activity& record = records[0];
  EXPECT_EQ(record.kind, BP_ACTIVITY_COPY + 0u);
  EXPECT_STREQ(record.name, "copy");
  EXPECT_EQ(record.device, card);
  EXPECT_EQ(record.stream, reinterpret_cast<bp_stream*>(&line));
  EXPECT_EQ(record.bytes, 8u);
  EXPECT_EQ(record.correlation_id, 7u);
  EXPECT_EQ(record.start_ns, 100);
  EXPECT_EQ(record.end_ns, 101);
}

TEST_F(ProfilerOfAnInstance, GoesOnAfterAStopThatRanOutOfTime) {
  ASSERT_EQ(start(card), BP_OK) << text;
  std::function<void()> first =
      recorded(*machine.profiler, line, {BP_ACTIVITY_COPY, "first"}, [this] { ++runs; });
  for (const uint64_t timeout_ns : {0u, 1000u}) {
    EXPECT_EQ(ops.stop(ops.self, card, timeout_ns), BP_TIMEOUT);
    EXPECT_EQ(text,
              "profiler.stop: the work did not end within " + std::to_string(timeout_ns) + " ns");
  }
  EXPECT_TRUE(machine.hooks.is_recording());
  EXPECT_EQ(start(card), BP_ALREADY_EXISTS);
  run({BP_ACTIVITY_COPY, "second"});
  first();
  first = nullptr;
  EXPECT_EQ(ops.stop(ops.self, card, 0), BP_OK) << text;
  EXPECT_FALSE(machine.hooks.is_recording());
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(ops.stop(ops.self, card, 0), BP_OK) << "nothing is recorded";
}

TEST_F(ProfilerOfAnInstance, RecordsOnlyTheKindsThatAreAskedFor) {
  ASSERT_EQ(start(card, {BP_ACTIVITY_KERNEL, BP_ACTIVITY_FILL}), BP_OK) << text;
  run({BP_ACTIVITY_COPY, "copy"});
  run({BP_ACTIVITY_FILL, "fill"});
  EXPECT_EQ(runs, 2);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_STREQ(records[0].name, "fill");
}

TEST_F(ProfilerOfAnInstance, RefusesKindsThatItDoesNotKnow) {
  for (const bp_activity_kind kind : {0u, 7u, 64u, BP_VENDOR_FIRST, UINT32_MAX}) {
    EXPECT_EQ(start(card, {BP_ACTIVITY_COPY, kind}), BP_UNSUPPORTED);
    EXPECT_EQ(text, "profiler.start: kind " + std::to_string(kind) +
                        " is not known; the kinds 1 to 6 are");
  }
  const bp_profile_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PROFILE_DESC,
                             .sink = [](void*, const bp_activity*) {},
                             .kind_count = 2};
  EXPECT_EQ(ops.start(ops.self, card, &desc), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "profiler.start: kinds is NULL, but its count is 2");
  EXPECT_FALSE(machine.hooks.is_recording());
}

TEST_F(ProfilerOfAnInstance, RefusesDevicesOfOthers) {
  EXPECT_EQ(start(nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "profiler.start: device is NULL or not one of this backend");
}

TEST_F(ProfilerOfAnInstance, ReadsTheClockOfTheHostIfTheDeviceHasNone) {
  offer_profiler<Cards<Machine, Card>>(machine);
  int64_t device_ns = 0, host_ns = 0, error_ns = 0;
  ASSERT_EQ(ops.calibrate(ops.self, card, &device_ns, &host_ns, &error_ns), BP_OK) << text;
  EXPECT_LE(device_ns, host_now_ns());
  EXPECT_GE(device_ns, host_ns - error_ns);
  EXPECT_LE(device_ns, host_ns + error_ns);
}

}  // namespace
}  // namespace bp
