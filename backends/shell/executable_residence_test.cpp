// Tests load() and unload() of executables.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

const std::vector<float> kX = {1, 2, 3, 4}, kOwn = {10, 20, 30, 40}, kShared = {5, 5, 5, 5};

// y = x + own + shared, where `shared` has a key.
class ResidenceTest : public ProgramTest {
 public:
  FakeDevice& its_device() { return device; }

 protected:
  ResidenceTest() {
    maker.values[shared].key = "shared";
    maker.add_add(x, own, y);
    maker.add_add(y, shared, y);
    executable = compile(maker);
  }

  bp_status load(const bp_program* constants = nullptr) {
    return ops.load(ops.self, executable, constants);
  }
  bp_status unload() { return ops.unload(ops.self, executable); }
  void expect_right() {
    EXPECT_EQ(run(executable, maker, {kX})[1], (std::vector<float>{16, 27, 38, 49}));
  }

  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), own = maker.add_constant(kOwn),
                 shared = maker.add_constant(kShared), y = maker.add_value(BP_VALUE_OUTPUT);
  bp_executable* executable = nullptr;
};

TEST_F(ResidenceTest, HoldsNoMemoryWhileItIsUnloaded) {
  expect_right();
  const size_t loaded_count = device.live_count();
  const bp_executable_info before = info_of(executable);
  EXPECT_EQ(before.is_loaded, 1u);
  EXPECT_EQ(before.constant_bytes, 256u);
  EXPECT_EQ(before.shared_constant_bytes, 16u);
  ASSERT_EQ(unload(), BP_OK) << device.text;
  EXPECT_EQ(device.live_count(), loaded_count - 3) << "two buffers and an event have ended";
  const bp_executable_info after = info_of(executable);
  EXPECT_EQ(after.is_loaded, 0u);
  EXPECT_EQ(after.constant_bytes + after.shared_constant_bytes, 0u);
  EXPECT_EQ(unload(), BP_OK) << "it is unloaded already";
}

TEST_F(ResidenceTest, RefusesLaunchesUntilItIsLoaded) {
  ProgramCall call(device, kernel_of(executable), maker, {kX});
  ASSERT_EQ(unload(), BP_OK);
  EXPECT_EQ(call.run(), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "program: the executable is not loaded; call load() first");
  EXPECT_TRUE(launched.empty());
  ASSERT_EQ(load(maker.program()), BP_OK) << device.text;
  EXPECT_EQ(call.run(), BP_OK) << device.text;
  EXPECT_EQ(call.elements(1), (std::vector<float>{16, 27, 38, 49}));
  EXPECT_EQ(load(), BP_OK) << "it is loaded already";
  EXPECT_EQ(info_of(executable).constant_bytes, 256u);
  EXPECT_EQ(info_of(executable).is_loaded, 1u);
}

TEST_F(ResidenceTest, FindsConstantsByTheirKeys) {
  bp_executable* const other = compile(maker);
  ASSERT_EQ(unload(), BP_OK);
  ASSERT_EQ(load(), BP_OK) << "another executable holds the key: " << device.text;
  expect_right();
  ASSERT_EQ(unload(), BP_OK);
  ASSERT_EQ(ops.release(ops.self, other), BP_OK);
  const size_t unloaded_count = device.live_count();
  EXPECT_EQ(load(), BP_NOT_FOUND);
  EXPECT_EQ(device.text.find("load: value 2: no executable holds a constant with the key \"shared"),
            0u)
      << device.text;
  EXPECT_EQ(device.live_count(), unloaded_count) << "a load() that failed leaves nothing";
  EXPECT_EQ(info_of(executable).is_loaded, 0u);
  ASSERT_EQ(load(maker.program()), BP_OK) << device.text;
  expect_right();
}

TEST_F(ResidenceTest, StaysUnloadedIfTheDeviceHasNoMemory) {
  ASSERT_EQ(unload(), BP_OK);
  const size_t unloaded_count = device.live_count();
  device.failing_call = "allocate";
  device.failing_after = 1;
  EXPECT_EQ(load(maker.program()), BP_OUT_OF_MEMORY);
  EXPECT_EQ(device.live_count(), unloaded_count);
  device.failing_call = "";
  ASSERT_EQ(load(maker.program()), BP_OK) << device.text;
  expect_right();
}

TEST_F(ResidenceTest, FreesItsMemoryBehindItsLaunches) {
  expect_right();
  device.log.clear();
  ASSERT_EQ(unload(), BP_OK);
  ASSERT_GE(device.log.size(), 3u);
  EXPECT_NE(device.log[0].find("waits for event"), std::string::npos) << device.log[0];
  EXPECT_NE(device.log[1].find("freed behind stream"), std::string::npos) << device.log[1];
}

TEST_F(ResidenceTest, MakesItsPlansAgain) {
  static int plans;
  plans = 0;
  add.prepare = [](const bp_kernel* self, bp_device*, const bp_prepare_desc*, const void*,
                   bp_plan** out_plan) -> bp_status {
    ++plans;
    *out_plan = static_cast<ResidenceTest&>(of(self)).its_device().make_plan();
    return BP_OK;
  };
  add.plan_info = [](const bp_kernel*, const bp_plan*, bp_plan_info* info) -> bp_status {
    info->packed_size_bytes = 0;
    return BP_OK;
  };
  add.plan_release = [](const bp_kernel* self, bp_plan* plan) -> bp_status {
    --plans;
    static_cast<ResidenceTest&>(of(self)).its_device().end(plan);
    return BP_OK;
  };
  bp_executable* const planned = compile(maker);
  EXPECT_EQ(plans, 2);
  ASSERT_EQ(ops.unload(ops.self, planned), BP_OK);
  EXPECT_EQ(plans, 0);
  ASSERT_EQ(ops.load(ops.self, planned, maker.program()), BP_OK) << device.text;
  EXPECT_EQ(plans, 2);
  EXPECT_EQ(run(planned, maker, {kX})[1], (std::vector<float>{16, 27, 38, 49}));
  ASSERT_EQ(ops.release(ops.self, planned), BP_OK);
  EXPECT_EQ(plans, 0);
}

TEST_F(ResidenceTest, RefusesWrongHandles) {
  executable = nullptr;
  EXPECT_EQ(load(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "load: executable is NULL or not one of this backend");
  EXPECT_EQ(unload(), BP_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace bp
