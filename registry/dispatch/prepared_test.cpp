// Tests prepared ops: which work is done once, what each launch receives, and what may differ
// between launches.
#include <gtest/gtest.h>

#include "registry/boundary/fail.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// What the kernel of this file saw.
struct Seen {
  bp_prepare_desc desc{};
  bp_launch launch{}, packing{};
  bp_buffer_ref packed{};
  bp_plan* released = nullptr;
  int prepares = 0, packs = 0, launches = 0, releases = 0;
} seen;

int the_plan;  // Only its address is used.
uint64_t packed_size_bytes, preferred_bytes;
bp_status prepare_status, pack_status;

bp_plan* plan() { return reinterpret_cast<bp_plan*>(&the_plan); }

bp_kernel make_planner() {
  bp_kernel kernel = make_kernel("add.planned");
  kernel.launch = [](const bp_kernel*, const bp_launch* launch, const void*) -> bp_status {
    seen.launch = *launch;
    ++seen.launches;
    return BP_OK;
  };
  kernel.prepare = [](const bp_kernel*, bp_device*, const bp_prepare_desc* desc, const void*,
                      bp_plan** out_plan) -> bp_status {
    seen.desc = *desc;
    ++seen.prepares;
    if (prepare_status != BP_OK) return fail(prepare_status, "no plan is of use");
    *out_plan = plan();
    return BP_OK;
  };
  kernel.plan_info = [](const bp_kernel*, const bp_plan*, bp_plan_info* info) -> bp_status {
    info->packed_size_bytes = packed_size_bytes;
    info->workspace_required_bytes = 100;
    info->workspace_preferred_bytes = preferred_bytes;
    info->algorithm = "tiles";
    return BP_OK;
  };
  kernel.plan_pack = [](const bp_kernel*, const bp_launch* launch, const void*,
                        const bp_buffer_ref* packed) -> bp_status {
    seen.packing = *launch;
    seen.packed = *packed;
    ++seen.packs;
    return pack_status == BP_OK ? BP_OK : fail(pack_status, "cannot pack");
  };
  kernel.plan_release = [](const bp_kernel*, bp_plan* plan) -> bp_status {
    seen.released = plan;
    ++seen.releases;
    return BP_OK;
  };
  return kernel;
}

class Prepare : public ::testing::Test {
 protected:
  Prepare() {
    seen = {};
    packed_size_bytes = 600;
    preferred_bytes = 5000;
    prepare_status = pack_status = BP_OK;
    for (bp_tensor* tensor : {&call.a, &call.b, &call.y}) {
      tensor->buffer = reinterpret_cast<bp_buffer*>(tensor);
    }
  }

  void load(std::vector<const bp_kernel*> kernels) {
    fake.kernels = std::move(kernels);
    ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }

  bp_status prepare(const std::vector<uint32_t>& constants = {1}) {
    return bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, constants.data(),
                         constants.size(), &prepared);
  }

  // Launches, expects a refusal and returns its text.
  std::string refusal() {
    EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_INVALID_ARGUMENT);
    return bp_error_text();
  }

  bp_prepared_info info() const {
    bp_prepared_info i{.struct_size = sizeof(i), .struct_type = BP_STRUCT_PREPARED_INFO};
    EXPECT_EQ(bp_prepared_get_info(prepared, &i), BP_OK) << bp_error_text();
    return i;
  }

  bp_kernel planner = make_planner();
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;
  AddCall call;
  bp_prepared* prepared = nullptr;
};

TEST_F(Prepare, PlansAndPacksOnce) {
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.desc.struct_size, sizeof(bp_prepare_desc));
  ASSERT_EQ(seen.desc.constant_arg_count, 1);
  EXPECT_EQ(seen.desc.constant_args[0], 1);
  EXPECT_EQ(seen.packed.size_bytes, 600);
  EXPECT_EQ(seen.packed.byte_offset % 256, 0);
  EXPECT_EQ(seen.packing.plan, plan());
  EXPECT_EQ(seen.packing.workspace.size_bytes, 5000);
  EXPECT_EQ(info().has_plan, 1);
  EXPECT_EQ(info().kernel, &planner);
  EXPECT_EQ(info().packed_size_bytes, 600);
  EXPECT_STREQ(info().algorithm, "tiles");
  EXPECT_EQ(seen.releases, 0);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(seen.released, plan());
  EXPECT_EQ(seen.releases, 1);
}

TEST_F(Prepare, HoldsWhatItPackedForAStreamThatHasTheAddressOfAnEndedOne) {
  static std::vector<bp_stream*> recorded;
  recorded.clear();
  fake.streams.create = [](void*, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    static char place;
    *out = reinterpret_cast<bp_stream*>(&place);
    return BP_OK;
  };
  fake.streams.destroy = [](void*, bp_stream*) -> bp_status { return BP_OK; };
  fake.streams.query = [](void*, bp_stream*, uint32_t* out_done) -> bp_status {
    *out_done = 1;
    return BP_OK;
  };
  fake.events.create = [](void*, bp_device*, const bp_event_desc*, bp_event** out) -> bp_status {
    *out = reinterpret_cast<bp_event*>(&recorded);
    return BP_OK;
  };
  fake.events.record = [](void*, bp_event*, bp_stream* stream) -> bp_status {
    recorded.push_back(stream);
    return BP_OK;
  };
  load({&planner});
  const bp_stream_ops& streams = *target->streams;
  bp_stream *first = nullptr, *second = nullptr;
  ASSERT_EQ(streams.create(streams.self, target->device, nullptr, &first), BP_OK);
  const uint32_t constant = 1;
  ASSERT_EQ(bp_op_prepare(target, first, 0, BP_OP_ADD, &call.args, &constant, 1, &prepared), BP_OK)
      << bp_error_text();
  ASSERT_EQ(streams.destroy(streams.self, first), BP_OK);
  ASSERT_EQ(streams.create(streams.self, target->device, nullptr, &second), BP_OK);
  ASSERT_EQ(second, first);
  ASSERT_EQ(bp_prepared_launch(prepared, second, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(recorded, std::vector<bp_stream*>{second})
      << "its launch may still read what is packed";
}

TEST_F(Prepare, LaunchesAgainAndAgainWithThePlan) {
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK) << bp_error_text();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK) << bp_error_text();
    EXPECT_EQ(seen.launch.plan, plan());
    EXPECT_EQ(seen.launch.stream, target->default_stream);
    EXPECT_EQ(seen.launch.workspace.size_bytes, 5000);
  }
  EXPECT_EQ(seen.prepares, 1);
  EXPECT_EQ(seen.packs, 1);
  EXPECT_EQ(seen.launches, 3);
  bp_dispatch_statistics statistics{.struct_size = sizeof(statistics)};
  ASSERT_EQ(bp_target_statistics(target, BP_OP_ADD, &statistics), BP_OK);
  EXPECT_EQ(statistics.native_count, 3);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, PacksNothingWhereThereIsNothingToPack) {
  packed_size_bytes = 0;
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK);
  EXPECT_EQ(seen.packs, 0);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, ServesAKernelWithoutPlansAndSaysSo) {
  bp_kernel plain = make_kernel("add.plain");
  load({&plain});
  ASSERT_EQ(prepare(), BP_OK);
  EXPECT_EQ(info().has_plan, 0);
  EXPECT_STREQ(info().algorithm, "add.plain makes no plans");
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, ServesAFrameThatTheKernelDoesNotPlan) {
  prepare_status = BP_UNSUPPORTED;
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK) << bp_error_text();
  EXPECT_EQ(info().has_plan, 0);
  EXPECT_STREQ(info().algorithm, "no plan is of use");
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK);
  EXPECT_EQ(seen.launch.plan, nullptr);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(seen.releases, 0);
}

TEST_F(Prepare, ReadsAVendorsRefusalAsItsBackendSays) {
  prepare_status = -5;
  fake.backend.status_class = [](void*, bp_status code, bp_status* out) -> bp_status {
    *out = code == -5 ? BP_UNSUPPORTED : BP_INTERNAL;
    return BP_OK;
  };
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK) << bp_error_text();
  EXPECT_EQ(info().has_plan, 0);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, PacksInTheRequiredWorkspaceWhereMemoryIsShort) {
  preferred_bytes = 64 << 20;
  static const auto allocate = fake.allocator.allocate;
  fake.allocator.allocate = [](void* self, bp_device* device, const bp_allocate_desc* desc,
                               bp_buffer** out) -> bp_status {
    if (desc->size_bytes > 32 << 20) return fail(BP_OUT_OF_MEMORY, "no room");
    return allocate(self, device, desc, out);
  };
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.packing.workspace.size_bytes, 100);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, ReadsNoFunctionsBehindTheEndOfAnOlderKernel) {
  bp_kernel older = planner;
  older.struct_size = offsetof(bp_kernel, prepare);
  load({&older});
  ASSERT_EQ(prepare(), BP_OK);
  EXPECT_EQ(info().has_plan, 0);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, PassesAFailureOnAndKeepsNothing) {
  load({&planner});
  prepare_status = BP_INTERNAL;
  EXPECT_EQ(prepare(), BP_INTERNAL);
  EXPECT_STREQ(bp_error_text(), "no plan is of use");
  prepare_status = BP_OK;
  pack_status = BP_DEVICE_LOST;
  EXPECT_EQ(prepare(), BP_DEVICE_LOST);
  EXPECT_STREQ(bp_error_text(), "cannot pack");
  EXPECT_EQ(seen.releases, 1);
  EXPECT_EQ(prepared, nullptr);
}

TEST_F(Prepare, RefusesConstantsThatCannotBe) {
  load({&planner});
  EXPECT_EQ(prepare({0, 70}), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "add: constant_args has the number 70; the frame has the tensors 0 to 2");
  EXPECT_EQ(prepare({1, 0, 1}), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: constant_args has the number 1 twice; give it once");
  EXPECT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 1, &prepared),
            BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "constant_args is NULL");
  EXPECT_EQ(prepare({2}), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: y is written, so it cannot be constant");
  call.b.buffer = nullptr;
  EXPECT_EQ(prepare({1}), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: b is constant, but has no buffer");
}

TEST_F(Prepare, CountsTheTensorsOfAListOneByOne) {
  bp_kernel joiner = planner;
  joiner.name = "cat.planned";
  joiner.op = BP_OP_CAT;
  joiner.args_size_bytes = BP_CAT_ARGS_SIZE_R3;
  load({&joiner});
  std::vector<bp_tensor> inputs(70, call.a);
  std::vector<const bp_tensor*> list;
  for (const bp_tensor& input : inputs) list.push_back(&input);
  int64_t shape[] = {70 * call.shape[0], call.shape[1]};
  bp_tensor y = call.y;
  y.shape = shape;
  const bp_cat_args args{
      .struct_size = sizeof(args), .xs_count = list.size(), .xs = list.data(), .y = &y};
  const auto prepare_cat = [&](uint32_t number) {
    return bp_op_prepare(target, nullptr, 0, BP_OP_CAT, &args, &number, 1, &prepared);
  };
  EXPECT_EQ(prepare_cat(70), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "cat: y is written, so it cannot be constant");
  EXPECT_EQ(prepare_cat(71), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "cat: constant_args has the number 71; the frame has the tensors 0 to 70");
  ASSERT_EQ(prepare_cat(69), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.desc.constant_args[0], 69);
  inputs[68].byte_offset += 4;
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  inputs[69].byte_offset += 4;
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "cat: xs differs from the prepared frame; a constant argument must keep its place");
  inputs[69].buffer = nullptr;
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(prepare_cat(69), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "cat: xs[69] is constant, but has no buffer");
}

TEST_F(Prepare, TakesOtherBuffersButNoOtherShapes) {
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK);
  call.a.byte_offset = 512;
  call.y.buffer = reinterpret_cast<bp_buffer*>(&call);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK) << bp_error_text();
  call.b.byte_offset = 512;
  EXPECT_EQ(refusal(),
            "add: b differs from the prepared frame; a constant argument must keep its place");
  call.b.byte_offset = 0;
  int64_t longer[] = {3, 3};
  call.a.shape = longer;
  EXPECT_EQ(refusal(),
            "add: a differs from the prepared frame; dtype, shape and strides must stay the same");
  call.a.shape = call.shape;
  call.y.dtype = BP_F64;
  EXPECT_NE(refusal().find("add: y differs"), std::string::npos);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, GivesTheReasonWhyTheKernelRefusesOtherBuffers) {
  planner.supports = [](const bp_kernel*, bp_device*, bp_launch_flags,
                        const void* args) -> bp_reason {
    const uint64_t offset = static_cast<const bp_add_args*>(args)->a->byte_offset;
    return offset == 0 ? nullptr : "a begins behind its buffer's first byte";
  };
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK);
  call.a.byte_offset = 4;
  EXPECT_EQ(refusal(),
            "add: the prepared kernel add.planned does not take these buffers: a begins behind "
            "its buffer's first byte; prepare the call anew with them");
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, RefusesBuffersThatTheKernelDoesNotClaim) {
  planner.min_byte_alignment_bytes = 64;
  planner.flags &= ~bp_kernel_flags{BP_KERNEL_IN_PLACE};
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK);
  call.a.byte_offset = 4;
  EXPECT_NE(refusal().find("the prepared kernel add.planned does not take these buffers"),
            std::string::npos);
  call.a.byte_offset = 0;
  call.y.buffer = call.a.buffer;
  EXPECT_NE(refusal().find("the prepared kernel add.planned does not take these buffers"),
            std::string::npos);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, ComparesAttributesAndInlineScalars) {
  load({&planner});
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 3};
  ASSERT_EQ(prepare({}), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK);
  call.args.b_scalar = {BP_I64, 0, 4};
  EXPECT_EQ(refusal(),
            "add: b differs from the prepared frame; dtype, shape and strides must stay the same");
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(Prepare, EndsWithItsPlugin) {
  load({&planner});
  ASSERT_EQ(prepare(), BP_OK);
  ASSERT_EQ(bp_registry_unload(r.registry, target->plugin, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.releases, 1);
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_DEVICE_LOST);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(seen.releases, 1);
  EXPECT_EQ(bp_prepared_release(nullptr), BP_OK);
}

TEST_F(Prepare, RejectsAKernelWithSomeOfTheFunctions) {
  planner.plan_pack = nullptr;
  load({&planner});
  EXPECT_EQ(fake.results[0].outcome, BP_ADD_REJECTED);
  const std::string refusals = target->plugin->refusals;
  EXPECT_NE(
      refusals.find("add.planned: rejected: it has only some of prepare, plan_info, plan_pack "
                    "and plan_release; give all of them or none\n"),
      std::string::npos)
      << refusals;
}

}  // namespace
}  // namespace bp::core
