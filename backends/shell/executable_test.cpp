// Tests compiled programs: their values, the memory of their parts, plans, and launches that they
// refuse.
#include "backplane/shell/executable.hpp"

#include <cmath>
#include <functional>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

using Values = std::vector<float>;

class ExecutableTest : public ProgramTest {
 protected:
  uint32_t input() { return maker.add_value(BP_VALUE_INPUT); }
  uint32_t output() { return maker.add_value(BP_VALUE_OUTPUT); }
  uint32_t temporary(int64_t extent = 4) { return maker.add_value(BP_VALUE_TEMPORARY, {extent}); }

  ProgramMaker maker;
};

TEST_F(ExecutableTest, RunsOneNode) {
  const uint32_t x = input(), y = output();
  maker.add_neg(x, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{-1, -2, -3, -4}));
  EXPECT_EQ(run(executable, maker, {{5, 6, 7, 8}})[1], (Values{-5, -6, -7, -8}));
  EXPECT_EQ(info_of(executable).constant_bytes, 0u);
  EXPECT_EQ(info_of(executable).workspace_bytes, 0u);
}

// t = x + c; y = {-t[2], -t[3], t[0] + 10, t[1] + 10}
TEST_F(ExecutableTest, RunsNodesBehindEachOtherOnViewsOfTheirValues) {
  Values data{100, 200, 300, 400};
  static constexpr int64_t kEverySecond[] = {2};
  const uint32_t x = input(), c = maker.add_constant(data), t = temporary(), y = output();
  maker.values[x].strides = kEverySecond;
  auto& first = maker.add_add(x, c, t);
  bp_tensor strided = *first.a;
  strided.strides = kEverySecond;
  first.a = &strided;
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({2}, 8), .y = maker.view({2})}, {t, y});
  maker.add_node(BP_OP_ADD,
                 bp_add_args{.a = maker.view({2}),
                             .b_scalar = {.dtype = BP_F64, .bits = std::bit_cast<uint64_t>(10.0)},
                             .y = maker.view({2}, 8)},
                 {t, BP_NO_VALUE, y});
  bp_executable* const executable = compile(maker);
  data.assign(4, NAN);  // The constant was copied before.
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{-303, -404, 111, 212}));
}

TEST_F(ExecutableTest, TakesInputsAndThenOutputsInTheOrderOfTheirValues) {
  const uint32_t y = output(), a = input(), z = output(), b = input();
  maker.add_neg(a, y);
  maker.add_add(a, b, z);
  const std::vector<Values> all = run(compile(maker), maker, {{1, 1, 1, 1}, {2, 3, 4, 5}});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], (Values{-1, -1, -1, -1}));
  EXPECT_EQ(all[3], (Values{3, 4, 5, 6}));
}

TEST_F(ExecutableTest, IsLostByAResetOfItsDevice) {
  const uint32_t x = input(), y = output();
  maker.add_neg(x, y);
  bp_executable* const executable = compile(maker);
  const bp_kernel& kernel = kernel_of(executable);
  ++device.generation;
  ProgramCall call(device, kernel, maker, {{1, 2, 3, 4}});
  EXPECT_EQ(call.run(), BP_DEVICE_LOST);
  EXPECT_EQ(device.text, "program: the executable was made before its device was reset");
  uint64_t size_bytes = 0;
  EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size_bytes), BP_DEVICE_LOST);
  const bp_kernel* found = nullptr;
  EXPECT_EQ(ops.executable_kernel(ops.self, executable, &found), BP_DEVICE_LOST);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK) << device.text;
}

TEST_F(ExecutableTest, RunsANodeInPlace) {
  const uint32_t x = input(), y = output();
  maker.add_neg(x, y);
  maker.add_add(y, x, y);
  EXPECT_EQ(run(compile(maker), maker, {{1, 2, 3, 4}})[1], (Values{0, 0, 0, 0}));
}

// ---- Memory -------------------------------------------------------------------------------------

TEST_F(ExecutableTest, LetsTemporariesShareMemoryThatDoNotLiveTogether) {
  const uint32_t x = input(), t = temporary(), u = temporary(), v = temporary(), w = temporary(),
                 y = output();
  maker.add_neg(x, t);
  maker.add_neg(t, u);
  maker.add_neg(u, v);
  maker.add_neg(v, w);
  maker.add_neg(w, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(info_of(executable).workspace_bytes, 2 * 256u);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{-1, -2, -3, -4}));
  const auto place = [&](size_t n) { return launched[n].tensors[1].byte_offset; };
  EXPECT_NE(place(0), place(1)) << "one is read while the other is written";
  EXPECT_EQ(place(0), place(2));
  EXPECT_EQ(place(1), place(3));
}

TEST_F(ExecutableTest, KeepsTemporariesApartThatLiveTogether) {
  const uint32_t x = input(), t = temporary(), u = temporary(), v = temporary(), y = output();
  maker.add_neg(x, t);
  maker.add_add(t, t, u);
  maker.add_add(u, x, v);
  maker.add_add(v, t, y);  // This is the last use of t.
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(info_of(executable).workspace_bytes, 3 * 256u);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{-2, -4, -6, -8}));
}

TEST_F(ExecutableTest, PutsATemporaryIntoTheFirstGapThatIsLargeEnough) {
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {100}), large = temporary(100),
                 small = temporary(100), kept = temporary(100), gap = temporary(65),
                 y = maker.add_value(BP_VALUE_OUTPUT, {100});
  maker.add_neg(x, large);      // It gets 512 bytes from 0 on.
  maker.add_neg(large, small);  // It lies from 512 on.
  maker.add_neg(small, kept);   // It lies from 0 on, where `large` has ended.
  bp_tensor *const from = maker.view({65}), *const to = maker.view({65});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = from, .y = to}, {kept, gap});  // In `small`'s place.
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = to, .y = from}, {gap, y});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = from, .y = to}, {kept, y});
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(info_of(executable).workspace_bytes, 1024u);
  Values data(100, 3);
  run(executable, maker, {data});
  const uint64_t begin = launched[0].tensors[1].byte_offset;
  EXPECT_EQ(launched[1].tensors[1].byte_offset, begin + 512);
  EXPECT_EQ(launched[2].tensors[1].byte_offset, begin);
  EXPECT_EQ(launched[3].tensors[1].byte_offset, begin + 512);
}

TEST_F(ExecutableTest, PutsATemporaryBehindAGapThatIsTooSmall) {
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {100}), ended = temporary(100),
                 kept = temporary(100), large = temporary(200),
                 y = maker.add_value(BP_VALUE_OUTPUT, {100});
  maker.add_neg(x, ended);
  maker.add_neg(ended, kept);
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({100}), .y = maker.view({100}, 400)},
                 {kept, large});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({100}, 400), .y = maker.view({100})},
                 {large, y});
  const Values data(100, 3);
  EXPECT_EQ(run(compile(maker), maker, {data})[1], data);
  EXPECT_EQ(launched[2].tensors[1].byte_offset, launched[0].tensors[1].byte_offset + 1024 + 400);
}

TEST_F(ExecutableTest, GivesNodesTheirWorkspaceBehindTheTemporaries) {
  add.workspace_size = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*,
                          uint64_t* out_required, uint64_t* out_preferred) {
    *out_required = 100;
    *out_preferred = 300;
    return bp_status{BP_OK};
  };
  const uint32_t x = input(), t = temporary(), y = output();
  maker.add_neg(x, t);
  maker.add_add(t, x, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(info_of(executable).workspace_bytes, 256u + 512u);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{0, 0, 0, 0}));
  EXPECT_EQ(launched[0].launch.workspace.size_bytes, 0u);
  EXPECT_EQ(launched[1].launch.workspace.size_bytes, 300u);
  EXPECT_EQ(launched[1].launch.workspace.byte_offset, launched[0].tensors[1].byte_offset + 256);
}

TEST_F(ExecutableTest, FreesConstantsBehindTheLaunchesThatUseThem) {
  const Values data{1, 2, 3, 4};
  const uint32_t x = input(), c = maker.add_constant(data), y = output();
  maker.add_add(x, c, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(info_of(executable).constant_bytes, 256u);
  const bp_kernel& kernel = kernel_of(executable);
  ProgramCall one(device, kernel, maker, {data}), two(device, kernel, maker, {data});
  device.log.clear();
  for (ProgramCall* const call : {&one, &two, &one}) EXPECT_EQ(call->run(), BP_OK);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  // Stream 1 was the stream of the upload.
  EXPECT_EQ(device.log, (std::vector<std::string>{
                            "event 1 recorded on stream 2", "event 2 recorded on stream 3",
                            "stream 2 waits for event 1", "event 1 recorded on stream 2",
                            "stream 4 waits for event 1", "stream 4 waits for event 2",
                            "buffer 1 freed behind stream 4"}));
}

TEST_F(ExecutableTest, WaitsForItsLaunchesWhereNoStreamIsLeft) {
  const Values data{1, 2, 3, 4};
  const uint32_t x = input(), c = maker.add_constant(data), y = output();
  maker.add_add(x, c, y);
  bp_executable* const executable = compile(maker);
  run(executable, maker, {data});
  device.log.clear();
  device.failing_call = "stream.create";
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  EXPECT_EQ(device.log,
            (std::vector<std::string>{"event 1 synchronized", "buffer 1 freed behind nothing"}));
}

// ---- Plans --------------------------------------------------------------------------------------

// Has an add kernel that packs its second argument, and notes the calls of its functions.
class PlanTest : public ExecutableTest {
 protected:
  PlanTest() {
    add.prepare = [](const bp_kernel* self, bp_device*, const bp_prepare_desc* desc,
                     const void* args, bp_plan** out_plan) -> bp_status {
      PlanTest& test = test_of(self);
      if (test.device.fails("prepare")) return BP_OUT_OF_MEMORY;
      const auto& a = *static_cast<const bp_add_args*>(args);
      test.prepared = *desc;
      test.constants.assign(desc->constant_args, desc->constant_args + desc->constant_arg_count);
      test.prepared_b = a.b == nullptr ? bp_tensor{} : *a.b;
      if (test.refuses_plans) return BP_UNSUPPORTED;
      *out_plan = test.device.make_plan();
      return BP_OK;
    };
    add.plan_info = [](const bp_kernel* self, const bp_plan*, bp_plan_info* out_info) -> bp_status {
      if (test_of(self).device.fails("plan_info")) return BP_OUT_OF_MEMORY;
      out_info->packed_size_bytes = 64;
      out_info->workspace_required_bytes = 10;
      out_info->workspace_preferred_bytes = 20;
      return BP_OK;
    };
    add.plan_pack = [](const bp_kernel* self, const bp_launch* launch, const void* args,
                       const bp_buffer_ref* to) -> bp_status {
      PlanTest& test = test_of(self);
      if (test.device.fails("plan_pack")) return BP_OUT_OF_MEMORY;
      test.packed.push_back(*to);
      test.packed_b = test.device.element(*static_cast<const bp_add_args*>(args)->b, 3);
      test.packing_workspace_bytes = launch->workspace.size_bytes;
      return BP_OK;
    };
    add.plan_release = [](const bp_kernel* self, bp_plan* plan) -> bp_status {
      test_of(self).device.end(plan);
      return BP_OK;
    };
  }
  static PlanTest& test_of(const bp_kernel* self) { return static_cast<PlanTest&>(of(self)); }

  bp_prepare_desc prepared{};
  std::vector<uint32_t> constants;
  bp_tensor prepared_b{};
  bool refuses_plans = false;
  std::vector<bp_buffer_ref> packed;
  float packed_b = 0;
  uint64_t packing_workspace_bytes = 0;
  const Values data{0, 0, 0, 0}, weights{5, 6, 7, 8};
  const uint32_t x = input(), other = maker.add_constant(data), c = maker.add_constant(weights),
                 t = temporary(), y = output();
};

TEST_F(PlanTest, PreparesAndPacksOverTheConstantsOfANode) {
  maker.add_neg(x, t);
  maker.add_add(t, c, y);
  bp_executable* const executable = compile(maker, BP_LAUNCH_DETERMINISTIC);
  EXPECT_EQ(constants, std::vector<uint32_t>{1});
  EXPECT_EQ(prepared.flags, uint32_t{BP_LAUNCH_DETERMINISTIC});
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_EQ(packed[0].size_bytes, 64u);
  EXPECT_EQ(packed_b, 8) << "the elements are there when they are packed";
  EXPECT_EQ(packing_workspace_bytes, 20u);
  EXPECT_EQ(info_of(executable).constant_bytes, 2 * 256u + 64u);
  EXPECT_EQ(info_of(executable).workspace_bytes, 256u + 256u);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{4, 4, 4, 4}));
  EXPECT_EQ(launched[0].launch.plan, nullptr);
  EXPECT_NE(launched[1].launch.plan, nullptr);
  EXPECT_EQ(launched[1].launch.workspace.size_bytes, 20u) << "what the plan needs";
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  EXPECT_EQ(device.live_count(), 0u) << "the plan and what it packed have ended";
}

TEST_F(PlanTest, LaunchesWithoutAPlanWhereNoneIsOfUse) {
  refuses_plans = true;
  maker.add_add(x, c, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{6, 8, 10, 12}));
  EXPECT_EQ(launched[0].launch.plan, nullptr);
  EXPECT_TRUE(packed.empty());
}

TEST_F(PlanTest, GivesEverythingBackWhereCompilingFails) {
  maker.add_add(x, c, t);
  maker.add_add(t, c, y);
  struct Call {
    const char* name;
    int count;
    const char* text;
  };
  const Call calls[] = {{"stream.create", 1, "stream.create"},
                        {"allocate", 5, "allocate"},
                        {"copy_from_host", 2, "the copy of constants"},
                        {"prepare", 2, "prepare"},
                        {"plan_info", 2, "plan_info"},
                        {"plan_pack", 2, "plan_pack"},
                        {"stream.synchronize", 1, "the copy of constants"}};
  for (const auto& [call, count, text] : calls) {
    for (int i = 0; i <= count; ++i) {
      device.failing_call = call;
      device.failing_after = i;
      bp_executable* executable = nullptr;
      const bp_status status = ops.compile(ops.self, device.handle(), maker.desc(), &executable);
      EXPECT_EQ(status, i < count ? BP_OUT_OF_MEMORY : BP_OK) << call << " " << i;
      EXPECT_EQ(executable == nullptr, i < count);
      EXPECT_EQ(device.text, "compile: " + std::string(text) + " failed");
      EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
      EXPECT_EQ(device.live_count(), 0u) << call << " " << i;
    }
  }
}

TEST_F(PlanTest, WaitsForItsCopiesBeforeItFreesWhatTheyWrite) {
  maker.add_add(x, c, y);
  device.failing_call = "prepare";
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), BP_OUT_OF_MEMORY);
  EXPECT_EQ(device.log,
            (std::vector<std::string>{"stream 1 synchronized", "buffer 1 freed behind nothing"}));
}

// ---- Launches -----------------------------------------------------------------------------------

class LaunchTest : public ExecutableTest {
 protected:
  LaunchTest() {
    maker.add_neg(x, t);
    maker.add_add(t, x, y);
  }
  // Returns the error text of a launch that `change` has made wrong.
  std::string refusal(bp_status want, const std::function<void(ProgramCall&)>& change) {
    bp_executable* const executable = compile(maker, BP_LAUNCH_STRICT_F32);
    ProgramCall call(device, kernel_of(executable), maker, {{1, 2, 3, 4}});
    const std::vector<bp_tensor> tensors = call.tensors;
    const bp_launch launch = call.launch;
    change(call);
    launched.clear();
    EXPECT_EQ(call.run(), want);
    EXPECT_TRUE(launched.empty() || want == BP_OK);
    call.tensors = tensors;
    call.launch = launch;
    return device.text;
  }

  const uint32_t x = input(), t = temporary(), y = output();
};

TEST_F(LaunchTest, RefusesTensorsThatAreNotThoseOfTheProgram) {
  static constexpr int64_t kFive[] = {5}, kTwo[] = {2};
  const std::string other = " has not the dtype, shape and strides of value ";
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.args.tensor_count = 3; }),
            "program: tensor_count is 3; the program has 2 tensors");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.args.tensors = nullptr; }),
            "program: tensors is NULL; the program has 2 tensors");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.tensors[1].dtype = BP_I32; }),
            "program: tensor 1" + other + "2");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.tensors[0].shape = kFive; }),
            "program: tensor 0" + other + "0");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.tensors[0].strides = kTwo; }),
            "program: tensor 0" + other + "0");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.tensors[1].ndim = 0; }),
            "program: tensor 1" + other + "2");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.tensors[1].buffer = nullptr; }),
            "program: tensor 1 has no buffer");
}

TEST_F(LaunchTest, RefusesFlagsAndLinksThatMustBeUnderstood) {
  static constexpr bp_struct_header kHint{sizeof(kHint), 77, nullptr},
      kStrict{sizeof(kStrict), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  const std::string text =
      "program: tensor 0 has flags, a link that must be understood, or too many links, and tensors "
      "of programs have none";
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](ProgramCall& c) { c.tensors[0].flags = 1u << 24; }), text);
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](ProgramCall& c) { c.tensors[0].next = &kStrict; }), text);
  refusal(BP_OK, [](ProgramCall& c) { c.tensors[0].next = &kHint; });
}

TEST_F(LaunchTest, RefusesWhatTheProgramWasNotCompiledFor) {
  EXPECT_EQ(
      refusal(BP_UNSUPPORTED, [](ProgramCall& c) { c.launch.flags = BP_LAUNCH_DETERMINISTIC; }),
      "program: launch flags are 1, and it was compiled for 2");
  refusal(BP_OK, [](ProgramCall& c) { c.launch.flags = BP_LAUNCH_DEVICE_CURRENT; });
  refusal(BP_OK, [](ProgramCall& c) { c.launch.flags = BP_LAUNCH_STRICT_F32; });
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT,
                    [](ProgramCall& c) { c.launch.plan = reinterpret_cast<bp_plan*>(&c); }),
            "program: it has no plans");
  EXPECT_EQ(
      refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.launch.workspace.size_bytes = 255; }),
      "program: workspace has 255 bytes; the launch needs 256");
  EXPECT_EQ(
      refusal(BP_INVALID_ARGUMENT, [](ProgramCall& c) { c.launch.workspace.buffer = nullptr; }),
      "program: workspace: buffer is NULL or not one of this backend");
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](ProgramCall& c) { c.args.flags = 1; }),
            "program: the frame has 24 bytes and flags 1; it needs at least 24 bytes and no flags");
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](ProgramCall& c) { c.args.struct_size = 8; }),
            "program: the frame has 8 bytes and flags 0; it needs at least 24 bytes and no flags");
}

TEST_F(LaunchTest, OnlyItsFirstNodeMayRefuseForAll) {
  bp_executable* const executable = compile(maker);
  const bp_kernel& kernel = kernel_of(executable);
  const auto status = [&](const char* name, bp_status refusal) {
    refusals = {{name, refusal}};
    return ProgramCall(device, kernel, maker, {}).run();
  };
  EXPECT_EQ(status("neg", BP_UNSUPPORTED), BP_UNSUPPORTED);
  EXPECT_EQ(launched.size(), 1u) << "nothing was submitted";
  EXPECT_EQ(status("add", BP_UNSUPPORTED), BP_INTERNAL);
  EXPECT_EQ(status("add", BP_DEVICE_LOST), BP_DEVICE_LOST);
  EXPECT_EQ(status("none", BP_INTERNAL), BP_OK);
}

TEST_F(LaunchTest, MayBeginWhileAnotherIsUnderWay) {
  bp_executable* const executable = compile(maker);
  const bp_kernel& kernel = kernel_of(executable);
  ProgramCall outer(device, kernel, maker, {{1, 2, 3, 4}}), inner(device, kernel, maker, {});
  on_launch = [&] { EXPECT_EQ(inner.run(), BP_OK); };  // Another thread may do the same.
  EXPECT_EQ(outer.run(), BP_OK);
  ASSERT_EQ(launched.size(), 4u);
  EXPECT_EQ(launched[1].tensors[0].buffer, inner.tensors[0].buffer);
  EXPECT_EQ(outer.elements(1), (Values{0, 0, 0, 0}));
}

}  // namespace
}  // namespace bp
