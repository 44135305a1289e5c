// Uses the validation layers as an oracle: with barriers they report nothing, and without barriers
// they report hazards.
#include <memory>

#include "backends/vulkan/vulkan_test.hpp"

namespace bp::vulkan {
namespace {

class VulkanValidation : public WithDevice {
 protected:
  void SetUp() override {
    WithDevice::SetUp();
    if (IsSkipped()) return;
    try {
      const Vulkan v{{"validation", "yes"}};
    } catch (const std::runtime_error& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

// Runs a chain of sums and copies, each of which needs the one before. Returns the messages of the
// layers.
std::string messages_of_a_chain(const Vulkan::Options& options) {
  Vulkan v(options);
  TestTensor a(v.b, BP_F32, {64}), b(v.b, BP_F32, {64}), c(v.b, BP_F32, {64});
  bp_stream* const stream = v.b.default_stream();
  bp_add_args first{}, second{};
  first.a = &a;
  first.b = &a;
  first.y = &b;
  second.a = &b;
  second.b = &a;
  second.y = &c;
  EXPECT_EQ(v.fill(stream, (&a)->buffer, 256, 0x3f800000), BP_OK) << v.b.text;
  EXPECT_EQ(v.b.launch(BP_OP_ADD, first), BP_OK) << v.b.text;
  EXPECT_EQ(v.b.launch(BP_OP_ADD, second), BP_OK) << v.b.text;
  EXPECT_EQ(v.b.launch(BP_OP_ADD, first), BP_OK) << v.b.text;
  const std::vector<uint32_t> words = v.read(stream, (&c)->buffer, 256);
  EXPECT_EQ(words[63], 0x40400000u) << "1 + 1 + 1";
  return v.b.errors;
}

TEST_F(VulkanValidation, FindsNothingWithBarriers) {
  EXPECT_EQ(messages_of_a_chain({{"validation", "yes"}}), "");
}

// A plan makes pipelines and dispatches each of them once, without workgroups.
TEST_F(VulkanValidation, FindsNothingInPlans) {
  Vulkan v({{"validation", "yes"}});
  TestTensor x(v.b, BP_F32, {8, 64}), y(v.b, BP_F32, {8});
  const int64_t axis = 1;
  bp_sum_args args{};
  args.x = &x;
  args.y = &y;
  args.axes = &axis;
  args.axes_count = 1;
  const bp_prepare_desc desc{.struct_size = sizeof(desc), .struct_type = BP_STRUCT_PREPARE_DESC};
  const bp_kernel* const kernel = v.b.kernel(BP_OP_SUM);
  bp_plan* plan = nullptr;
  ASSERT_EQ(kernel->prepare(kernel, v.b.device, &desc, &args, &plan), BP_OK) << v.b.text;
  EXPECT_EQ(kernel->plan_release(kernel, plan), BP_OK) << v.b.text;
  EXPECT_EQ(v.b.errors, "");
}

// The layers see the chain of launches through the descriptors that stand for its addresses.
TEST_F(VulkanValidation, FindsBarriersThatWereRemoved) {
  const std::string messages = messages_of_a_chain({{"validation", "yes"}, {"barriers", "no"}});
  EXPECT_NE(messages.find("SYNC-HAZARD-READ-AFTER-WRITE"), std::string::npos) << messages;
  EXPECT_NE(messages.find("SYNC-HAZARD-WRITE-AFTER-READ"), std::string::npos) << messages;
  EXPECT_NE(messages.find("vkCmdDispatch"), std::string::npos) << messages;
}

}  // namespace
}  // namespace bp::vulkan
