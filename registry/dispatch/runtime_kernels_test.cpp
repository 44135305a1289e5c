// Tests launches of ops that were described at run time: which kernels they reach, and what the
// statistics, the explanations and the layers say of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/runtime_ops.hpp"
#include "registry/tests/fake_backend.hpp"
#include "registry/tests/runtime_op_desc.hpp"

namespace bp::core {
namespace {

// The frame of TestOp in revision 1.
struct Args {
  uint32_t struct_size = 0, flags = 0;
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  uint32_t mode = 1;
  int32_t axis = 0;
};

struct GrownArgs : Args {
  const bp_tensor* bias = nullptr;
};

int launch_count = 0;

bp_kernel named_kernel(const char* name, const char* op_name) {
  bp_kernel kernel = make_kernel(name, 0, sizeof(Args));
  kernel.op_name = op_name;
  kernel.spec_revision = 1;
  kernel.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    ++launch_count;
    return BP_OK;
  };
  return kernel;
}

class RuntimeKernels : public ::testing::Test {
 protected:
  RuntimeKernels() { launch_count = 0; }

  uint32_t describe(TestOp& op) {
    const bp_op_desc desc = op.desc();
    uint32_t number = 0;
    EXPECT_EQ(bp_registry_add_ops(r.registry, 1, &desc, sizeof(desc), &number, nullptr), BP_OK);
    return number;
  }

  std::string explain(uint32_t op, const void* frame) {
    char text[4096];
    uint64_t size = 0;
    EXPECT_EQ(bp_kernel_explain(r.target(), 0, op, frame, sizeof(text), text, &size), BP_OK)
        << bp_error_text();
    return text;
  }

  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  AddCall call;  // Its tensors have shape (2, 3).
  GrownArgs args{{.struct_size = sizeof(Args), .x = &call.a, .weight = &call.b, .y = &call.y}};
};

TEST_F(RuntimeKernels, AreLaunchedByTheNameOfTheirOp) {
  TestOp op("acme.by_name");
  bp_kernel kernel = named_kernel("by_name.fast", "acme.by_name");
  fake.ops = {op.desc()};
  fake.kernels = {&kernel};
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  ASSERT_EQ(fake.results[0].outcome, uint32_t{BP_ADD_ACCEPTED});
  const uint32_t number = bp_op_from_name("acme.by_name");
  ASSERT_EQ(number, fake.op_numbers[0]);
  EXPECT_EQ(kernel.op, 0u) << "the host does not write to a kernel";
  EXPECT_EQ(bp_kernel_op(&kernel), number);
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_kernel_launch(r.target(), nullptr, 0, &kernel, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(launch_count, 3);
  bp_dispatch_statistics counts{.struct_size = sizeof(counts),
                                .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  ASSERT_EQ(bp_target_statistics(r.target(), number, &counts), BP_OK) << bp_error_text();
  EXPECT_EQ(counts.native_count, 3u);
  ASSERT_EQ(bp_target_statistics(r.target(), 0, &counts), BP_OK) << bp_error_text();
  EXPECT_EQ(counts.native_count, 3u);
  EXPECT_NE(explain(number, &args).find("acme.by_name(x f32 rank 2 contiguous, weight f32"),
            std::string::npos)
      << explain(number, &args);
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(r.target(), nullptr, 0, number, &args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  args.axis = 1;
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_INVALID_ARGUMENT);
  EXPECT_NE(std::string(bp_error_text()).find("axis"), std::string::npos) << bp_error_text();
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

// [OP-2]
TEST_F(RuntimeKernels, MayNameAnOpThatIsDescribedLater) {
  bp_kernel kernel = named_kernel("later", "acme.later");
  bp_kernel misfit = named_kernel("misfit", "acme.later");
  misfit.args_size_bytes = 48;
  fake.kernels = {&kernel, &misfit};
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.results[1].outcome, uint32_t{BP_ADD_ACCEPTED}) << "nobody can judge it yet";
  EXPECT_EQ(bp_kernel_op(&kernel), 0u);
  EXPECT_EQ(bp_kernel_launch(r.target(), nullptr, 0, &kernel, &args), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "later: nobody has described its op, acme.later");
  TestOp op("acme.later");
  const uint32_t number = describe(op);
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(launch_count, 1);
  EXPECT_NE(explain(number, &args)
                .find("misfit: args_size_bytes is 48, and the frame of "
                      "acme.later has 40 bytes in revision 1"),
            std::string::npos)
      << explain(number, &args);
}

TEST_F(RuntimeKernels, AreRejectedInWords) {
  TestOp op("acme.judged");
  describe(op);
  bp_kernel newer = named_kernel("newer", "acme.judged"), short_one = newer, numbered = newer;
  newer.spec_revision = 0;
  short_one.args_size_bytes = 32;
  numbered.op = kFirstRuntimeOp;
  bp_kernel nameless = named_kernel("nameless", "judged");
  fake.kernels = {&newer, &short_one, &numbered, &nameless};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const std::string refusals = plugin->refusals;
  for (const char* words :
       {"spec_revision is 0, and revision 1 brought acme.judged",
        "args_size_bytes is 32, and the frame of acme.judged has 40 bytes in revision 1",
        "op is 65536, a number of one host; give 0, and the name as op_name",
        "its op_name is judged, not vendor.name"}) {
    EXPECT_NE(refusals.find(words), std::string::npos) << words << "\n  but: " << refusals;
  }
}

// [KERNEL-10]
TEST_F(RuntimeKernels, OfAnOlderRevisionSeeNothingThatCameLater) {
  TestOp old("acme.older"), grown("acme.older");
  grown.append_bias();
  bp_kernel kernel = named_kernel("older", "acme.older");
  fake.ops = {old.desc()};
  fake.kernels = {&kernel};
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  const uint32_t number = bp_op_from_name("acme.older");
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  ASSERT_EQ(describe(grown), number);
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  args.struct_size = sizeof(GrownArgs);
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(launch_count, 3);
  args.bias = &call.a;
  EXPECT_EQ(bp_op_launch(r.target(), nullptr, 0, number, &args), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text())
                .find("older: bias is given; the kernel was written for revision 1"),
            std::string::npos)
      << bp_error_text();
}

// [OP-5]
TEST_F(RuntimeKernels, EndWithTheirPlugin) {
  TestOp op("acme.unloaded");
  bp_kernel kernel = named_kernel("unloaded", "acme.unloaded");
  fake.ops = {op.desc()};
  fake.kernels = {&kernel};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const uint32_t number = fake.op_numbers[0];
  FakeBackend other("acme.other");
  ASSERT_EQ(other.load(r.registry), BP_OK) << bp_error_text();
  const bp_target* target = nullptr;
  ASSERT_EQ(bp_registry_find_target(r.registry, "acme.other:0", &target), BP_OK);
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, number, &args), BP_UNSUPPORTED);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, number, &args), BP_NOT_FOUND);
  EXPECT_NE(std::string(bp_error_text()).find("acme.unloaded: nobody who described"),
            std::string::npos)
      << bp_error_text();
  ASSERT_EQ(bp_registry_destroy(std::exchange(r.registry, nullptr)), BP_OK);
}

TEST_F(RuntimeKernels, AreLaunchedBehindLayers) {
  TestRegistry layered(0, "validate,leak");
  TestOp op("acme.layered");
  bp_kernel kernel = named_kernel("layered", "acme.layered");
  FakeBackend behind;
  behind.ops = {op.desc()};
  behind.kernels = {&kernel};
  ASSERT_EQ(behind.load(layered.registry), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_kernel_op(bp_target_kernel(layered.target(), 0)), behind.op_numbers[0]);
  // A tensor without a buffer is found by its description.
  call.b.buffer = nullptr;
  EXPECT_EQ(bp_op_launch(layered.target(), nullptr, 0, behind.op_numbers[0], &args),
            BP_INVALID_ARGUMENT);
  EXPECT_NE(std::string(bp_error_text()).find("acme.layered: weight has elements and no buffer"),
            std::string::npos)
      << bp_error_text();
  ASSERT_EQ(bp_registry_destroy(std::exchange(layered.registry, nullptr)), BP_OK);
}

}  // namespace
}  // namespace bp::core
