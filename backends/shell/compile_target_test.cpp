// Tests compilations for devices that are described. Each "machine" is a compiler with a device of
// its own; one of them has another chip.
#include "backplane/shell/compile_target.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

class CompileTargetTest : public ProgramTest {
 protected:
  CompileTargetTest() {
    maker.add_neg(x, t);
    maker.add_neg(t, y);
    set_up({});
  }

  void set_up(const CompilerLimits& limits, const char* identity = "test 1",
              bool kernels_need_device = false) {
    CompilerBackend backend = device.backend({&neg, &add}, identity);
    backend.limits = limits;
    backend.kernels_need_device = kernels_need_device;
    compiler = std::make_unique<Compiler>(std::move(backend));
    ops = compiler->table();
  }
  std::vector<uint8_t> description() {
    uint64_t size = 0;
    EXPECT_EQ(ops.describe(ops.self, device.handle(), 0, nullptr, &size), BP_OK) << device.text;
    std::vector<uint8_t> bytes(size);
    EXPECT_EQ(ops.describe(ops.self, device.handle(), size, bytes.data(), &size), BP_OK);
    return bytes;
  }
  bp_status compile_for(const std::vector<uint8_t>& target, bp_executable** out) {
    bp_compile_desc desc = *maker.desc();
    desc.target = target.data();
    desc.target_size_bytes = target.size();
    return ops.compile(ops.self, nullptr, &desc, out);
  }
  std::vector<uint8_t> serialized(bp_executable* executable) {
    uint64_t size = 0;
    EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size), BP_OK) << device.text;
    std::vector<uint8_t> bytes(size);
    EXPECT_EQ(ops.serialize(ops.self, executable, size, bytes.data(), &size), BP_OK);
    return bytes;
  }

  const CompilerLimits chip{.refusal_of_ranges = "the chip has fixed shapes",
                            .chip_memory_bytes = 4096};
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), t = maker.add_value(BP_VALUE_TEMPORARY),
                 y = maker.add_value(BP_VALUE_OUTPUT);
};

TEST_F(CompileTargetTest, ServesTheDescribedDeviceAlone) {
  set_up(chip);
  const std::vector<uint8_t> target = description();
  EXPECT_EQ(description(), target);
  set_up({});
  EXPECT_NE(description(), target);
  bp_executable* executable = nullptr;
  const size_t before = device.live_count();
  ASSERT_EQ(compile_for(target, &executable), BP_OK) << device.text;
  EXPECT_EQ(device.live_count(), before) << "it holds nothing on the device here";
  const std::vector<uint8_t> bytes = serialized(executable);
  bp_executable* out = nullptr;
  EXPECT_EQ(ops.deserialize(ops.self, device.handle(), bytes.data(), bytes.size(), nullptr, &out),
            BP_INCOMPATIBLE);
  EXPECT_EQ(device.text, "deserialize: the bytes are for another device than Acme X1");
  EXPECT_EQ(ops.validate(ops.self, device.handle(), bytes.data(), bytes.size()), BP_INCOMPATIBLE);
  set_up(chip);
  ASSERT_EQ(ops.deserialize(ops.self, device.handle(), bytes.data(), bytes.size(), nullptr, &out),
            BP_OK)
      << device.text;
  EXPECT_EQ(run(out, maker, {{1, 2, 3, 4}})[1], (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(CompileTargetTest, IsNamedAndBoundedAsTheDescribedDevice) {
  set_up(chip);
  const std::vector<uint8_t> target = description();
  uint64_t there[2] = {}, here[2] = {}, own[2] = {};
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), there), BP_OK);
  set_up({});
  bp_compile_desc desc = *maker.desc();
  desc.target = target.data();
  desc.target_size_bytes = target.size();
  ASSERT_EQ(ops.fingerprint(ops.self, nullptr, &desc, here), BP_OK) << device.text;
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), own), BP_OK);
  EXPECT_EQ(here[0], there[0]);
  EXPECT_NE(here[0], own[0]);
  ProgramMaker large;
  const uint32_t a = large.add_value(BP_VALUE_INPUT, {4096}),
                 b = large.add_value(BP_VALUE_TEMPORARY, {4096}),
                 c = large.add_value(BP_VALUE_OUTPUT, {4096});
  large.add_neg(a, b);
  large.add_neg(b, c);
  desc = *large.desc();
  desc.target = target.data();
  desc.target_size_bytes = target.size();
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, nullptr, &desc, &executable), BP_UNSUPPORTED);
  EXPECT_NE(device.text.find("the chip memory has 4096"), std::string::npos) << device.text;
  ProgramMaker ranged;
  const int64_t n = ranged.add_range(1, 4, 8);
  ranged.add_neg(ranged.add_value(BP_VALUE_INPUT, {n}), ranged.add_value(BP_VALUE_OUTPUT, {n}));
  desc = *ranged.desc();
  desc.target = target.data();
  desc.target_size_bytes = target.size();
  uint32_t partition = 0;
  bp_reason reason = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(ops.query(ops.self, nullptr, &desc, 1, &partition, &reason, &count), BP_OK);
  EXPECT_STREQ(reason, "the described device takes no ranges; compile the program for each shape");
}

TEST_F(CompileTargetTest, DoesNotRunHere) {
  bp_executable* executable = nullptr;
  ASSERT_EQ(compile_for(description(), &executable), BP_OK);
  const bp_kernel* kernel = nullptr;
  EXPECT_EQ(ops.executable_kernel(ops.self, executable, &kernel), BP_UNSUPPORTED);
  EXPECT_NE(device.text.find("executable_kernel: the executable was compiled for a description"),
            std::string::npos);
  EXPECT_EQ(ops.load(ops.self, executable, nullptr), BP_UNSUPPORTED);
  EXPECT_EQ(ops.unload(ops.self, executable), BP_OK);
  EXPECT_EQ(info_of(executable).is_loaded, 0u);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
}

TEST_F(CompileTargetTest, NeedsNoContentOfConstantsWithKeys) {
  const std::vector<float> k = {1, 1, 1, 1};
  const uint32_t c = maker.add_constant(k), z = maker.add_value(BP_VALUE_OUTPUT);
  maker.values[c].data = nullptr;
  maker.values[c].key = "k";
  maker.add_add(x, c, z);
  bp_executable* executable = nullptr;
  ASSERT_EQ(compile_for(description(), &executable), BP_OK) << device.text;
  const std::vector<uint8_t> bytes = serialized(executable);
  maker.values[c].data = k.data();
  bp_executable* out = nullptr;
  ASSERT_EQ(
      ops.deserialize(ops.self, device.handle(), bytes.data(), bytes.size(), maker.program(), &out),
      BP_OK)
      << device.text;
  EXPECT_EQ(run(out, maker, {{1, 2, 3, 4}})[2], (std::vector<float>{2, 3, 4, 5}));
}

TEST_F(CompileTargetTest, RefusesBytesThatAreNoDescription) {
  const std::vector<uint8_t> target = description();
  bp_executable* executable = nullptr;
  for (size_t i = 0; i < target.size(); ++i) {
    std::vector<uint8_t> damaged = target;
    damaged[i] ^= 0x10;
    EXPECT_EQ(compile_for(damaged, &executable), BP_INCOMPATIBLE) << i;
    damaged = target;
    damaged.resize(i);
    if (i == 0) continue;
    EXPECT_EQ(compile_for(damaged, &executable), BP_INCOMPATIBLE) << i;
  }
  ASSERT_EQ(compile_for(target, &executable), BP_OK);
  EXPECT_EQ(compile_for(serialized(executable), &executable), BP_INCOMPATIBLE);
  EXPECT_EQ(device.text,
            "compile: target: the bytes are for another device than a description of a device");
  bp_compile_desc desc = *maker.desc();
  desc.target_size_bytes = 8;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), &desc, &executable), BP_INVALID_ARGUMENT);
  set_up({}, "test 2");
  EXPECT_EQ(compile_for(target, &executable), BP_INCOMPATIBLE);
  EXPECT_EQ(device.text, "compile: target: the bytes are not of this build of test 2");
}

TEST_F(CompileTargetTest, RefusesOtherKernels) {
  const std::vector<uint8_t> target = description();
  neg.flags &= ~bp_kernel_flags{BP_KERNEL_IN_PLACE};
  bp_executable* executable = nullptr;
  EXPECT_EQ(compile_for(target, &executable), BP_UNSUPPORTED);
  EXPECT_NE(device.text.find("was loaded with other options"), std::string::npos);
}

TEST_F(CompileTargetTest, IsOfferedOnlyByKernelsThatNeedNoDevice) {
  const std::vector<uint8_t> target = description();
  set_up({}, "test 1", true);
  EXPECT_EQ(ops.describe, nullptr);
  bp_executable* executable = nullptr;
  EXPECT_EQ(compile_for(target, &executable), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "compile: target is given, and describe() is not offered");
}

}  // namespace
}  // namespace bp
