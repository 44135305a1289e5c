// Tests programs that are compiled once for many shapes.
#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

using Values = std::vector<float>;

// t = -x; y = t + x + 1 with vectors of n elements.
class RangedProgram : public ProgramTest {
 protected:
  RangedProgram() {
    maker.add_neg(x, t);
    maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({n}), .y = maker.view({n})}, {t, y});
  }

  static FakeDevice& device_of(const bp_kernel* self) {
    return static_cast<RangedProgram&>(of(self)).device;
  }

  // Returns the parts that a launch with `length` elements has.
  static ProgramMaker with_length(int64_t length) {
    ProgramMaker actual;
    actual.add_value(BP_VALUE_INPUT, {length});
    actual.add_value(BP_VALUE_TEMPORARY, {length});
    actual.add_value(BP_VALUE_OUTPUT, {length});
    return actual;
  }
  Values run_with(bp_executable* executable, const Values& data) {
    const ProgramMaker actual = with_length(static_cast<int64_t>(data.size()));
    return run(executable, actual, {data})[1];
  }

  ProgramMaker maker;
  const int64_t n = maker.add_range(1, 100, 1000);
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {n}),
                 t = maker.add_value(BP_VALUE_TEMPORARY, {n}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {n});
};

TEST_F(RangedProgram, RunsWithEveryLengthOfItsRange) {
  bp_executable* const executable = compile(maker);
  for (const size_t length : {4u, 100u, 1u, 1000u, 4u, 999u}) {
    Values data(length);
    for (size_t i = 0; i < length; ++i) data[i] = static_cast<float>(i + length);
    EXPECT_EQ(run_with(executable, data), data) << length;
  }
}

TEST_F(RangedProgram, NeedsTheWorkspaceOfItsLength) {
  bp_executable* const executable = compile(maker);
  const bp_kernel& kernel = kernel_of(executable);
  EXPECT_EQ(info_of(executable).workspace_bytes, 4096u) << "1000 floats";
  const auto bytes_for = [&](int64_t length) {
    const ProgramMaker actual = with_length(length);
    const ProgramCall call(device, kernel, actual, {});
    return call.launch.workspace.size_bytes;
  };
  EXPECT_EQ(bytes_for(64), 256u);
  EXPECT_EQ(bytes_for(65), 512u);
  EXPECT_EQ(bytes_for(1000), 4096u);
  uint64_t required = 0;
  EXPECT_EQ(kernel.workspace_size(&kernel, device.handle(), 0, nullptr, &required, nullptr), BP_OK);
  EXPECT_EQ(required, 4096u);

  const ProgramMaker actual = with_length(65);
  ProgramCall call(device, kernel, actual, {});
  call.launch.workspace.size_bytes = 256;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "program: workspace has 256 bytes; the launch needs 512");
  call.launch.workspace.size_bytes = 512;
}

TEST_F(RangedProgram, RefusesTensorsThatDoNotGiveItsExtents) {
  bp_executable* const executable = compile(maker);
  const ProgramMaker actual = with_length(10);
  ProgramCall call(device, kernel_of(executable), actual, {});
  const int64_t other[] = {9}, none[] = {0}, many[] = {1001};
  const int64_t* const ten = call.tensors[0].shape;
  call.tensors[1].shape = other;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text,
            "program: tensor 1 has 9 on axis 0, which is extent 0, and this extent is 10");
  call.tensors[1].shape = ten;
  call.tensors[0].shape = many;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "program: extent 0 is 1001; its range is 1 to 1000");
  call.tensors[0].shape = none;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "program: extent 0 is 0; its range is 1 to 1000");
  call.tensors[0].shape = ten;
  call.tensors[0].ndim = 0;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "program: tensor 0: ndim is 0, and that of value 0 is 1");
  call.tensors[0].ndim = 1;
  EXPECT_EQ(call.run(), BP_OK);
}

TEST_F(RangedProgram, RunsAgainAfterItWasWrittenAndRead) {
  bp_executable* const executable = compile(maker);
  uint64_t size_bytes = 0;
  ASSERT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size_bytes), BP_OK);
  std::vector<std::byte> bytes(size_bytes);
  ASSERT_EQ(ops.serialize(ops.self, executable, size_bytes, bytes.data(), &size_bytes), BP_OK);
  bp_executable* again = nullptr;
  ASSERT_EQ(ops.deserialize(ops.self, device.handle(), bytes.data(), size_bytes, nullptr, &again),
            BP_OK)
      << device.text;
  EXPECT_EQ(run_with(again, {1, 2, 3}), (Values{1, 2, 3}));
  EXPECT_EQ(info_of(again).workspace_bytes, 4096u);
}

TEST_F(RangedProgram, HasAnotherFingerprintForAnotherRange) {
  uint64_t before[2] = {}, after[2] = {};
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), before), BP_OK);
  maker.extents[0].max = 1001;
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), after), BP_OK);
  EXPECT_NE(before[0], after[0]);
}

TEST_F(RangedProgram, IsRefusedIfNoKernelTakesOneOfItsEnds) {
  neg.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void* args) -> bp_reason {
    const auto& a = *static_cast<const bp_neg_args*>(args);
    return a.x->shape[0] > 512 ? "more than 512 elements" : nullptr;
  };
  uint32_t partitions[2] = {};
  bp_reason reasons[2] = {};
  uint64_t count = 9;
  ASSERT_EQ(ops.query(ops.self, device.handle(), maker.desc(), 2, partitions, reasons, &count),
            BP_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_STREQ(reasons[1], "more than 512 elements");
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), BP_UNSUPPORTED);
}

TEST_F(RangedProgram, IsRefusedByADeviceOfFixedShapes) {
  CompilerBackend fixed = device.backend({&neg, &add}, "test 1");
  fixed.limits.refusal_of_ranges = "shapes are fixed";
  compiler = std::make_unique<Compiler>(std::move(fixed));
  ops = compiler->table();
  uint32_t partitions[2] = {};
  bp_reason reasons[2] = {};
  uint64_t count = 9;
  ASSERT_EQ(ops.query(ops.self, device.handle(), maker.desc(), 2, partitions, reasons, &count),
            BP_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_STREQ(reasons[0], "shapes are fixed");
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "compile: node 0: shapes are fixed");
}

TEST_F(RangedProgram, HasToFitIntoTheChipMemoryAtItsLargest) {
  CompilerBackend small = device.backend({&neg, &add}, "test 1");
  small.limits.chip_memory_bytes = 4095;
  compiler = std::make_unique<Compiler>(std::move(small));
  ops = compiler->table();
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), BP_UNSUPPORTED);
  EXPECT_EQ(device.text,
            "compile: the temporaries of the program need 4096 bytes, and the chip memory has "
            "4095; compile a smaller part of the program");
  maker.extents[0].max = 960;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), BP_OK);
}

// ---- Plans --------------------------------------------------------------------------------------

TEST_F(RangedProgram, HasPlansAtThePreferredLengthAndForNodesOfOneShape) {
  static int prepared_count;
  prepared_count = 0;
  neg.prepare = [](const bp_kernel* self, bp_device*, const bp_prepare_desc*, const void*,
                   bp_plan** out_plan) -> bp_status {
    ++prepared_count;
    *out_plan = device_of(self).make_plan();
    return BP_OK;
  };
  neg.plan_info = [](const bp_kernel*, const bp_plan*, bp_plan_info*) -> bp_status {
    return BP_OK;
  };
  neg.plan_release = [](const bp_kernel* self, bp_plan* plan) -> bp_status {
    device_of(self).end(plan);
    return BP_OK;
  };
  const uint32_t z = maker.add_value(BP_VALUE_OUTPUT, {4}),
                 w = maker.add_value(BP_VALUE_INPUT, {4});
  maker.add_neg(w, z);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(prepared_count, 3);
  const auto plans_with = [&](int64_t length) {
    ProgramMaker actual = with_length(length);
    actual.add_value(BP_VALUE_OUTPUT, {4});
    actual.add_value(BP_VALUE_INPUT, {4});
    launched.clear();
    run(executable, actual, {});
    std::vector<bool> plans;
    for (const Launched& each : launched) plans.push_back(each.launch.plan != nullptr);
    return plans;
  };
  EXPECT_EQ(plans_with(100), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(plans_with(7), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(prepared_count, 3) << "a launch never prepares";
}

}  // namespace
}  // namespace bp
