// Tests the reasons why calls are not served by kernels of the device alone.
#include "registry/state/reasons.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <thread>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

class ReasonsOfTarget : public ::testing::Test {
 protected:
  void load(std::vector<const bp_kernel*> kernels) {
    fake_.kernels = std::move(kernels);
    ASSERT_EQ(fake_.load(r_.registry), BP_OK) << bp_error_text();
    target_ = r_.target();
  }

  bp_dispatch_reason reason(uint64_t index) const {
    bp_dispatch_reason found{.struct_size = sizeof(found),
                             .struct_type = BP_STRUCT_DISPATCH_REASON};
    EXPECT_EQ(bp_target_reason(target_, index, &found), BP_OK) << bp_error_text();
    return found;
  }

  void launch(uint32_t op, const void* args) {
    ASSERT_EQ(bp_op_launch(target_, nullptr, 0, op, args), BP_OK) << bp_error_text();
  }

  FakeBackend fake_;  // It outlives the registry.
  TestRegistry r_;
  const bp_target* target_ = nullptr;
  AddCall call_;
};

TEST_F(ReasonsOfTarget, KernelsOfTheDeviceHaveNone) {
  bp_kernel kernel = make_kernel("add.any");
  load({&kernel});
  launch(BP_OP_ADD, &call_.args);
  EXPECT_EQ(bp_target_reason_count(target_), 0u);
  bp_dispatch_reason found{.struct_size = sizeof(found), .struct_type = BP_STRUCT_DISPATCH_REASON};
  EXPECT_EQ(bp_target_reason(target_, 0, &found), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "target.reason: index is 0, and there are 0 reasons");
}

TEST_F(ReasonsOfTarget, ScalarsThatBecomeTensorsAreCounted) {
  bp_kernel kernel = make_kernel("add.tensors");
  kernel.flags &= ~bp_kernel_flags{BP_KERNEL_TAKES_SCALAR};
  load({&kernel});
  call_.args.b = nullptr;
  call_.args.b_scalar = {BP_F64, 0, std::bit_cast<uint64_t>(2.0)};
  for (int i = 0; i < 3; ++i) launch(BP_OP_ADD, &call_.args);
  ASSERT_EQ(bp_target_reason_count(target_), 1u);
  const bp_dispatch_reason found = reason(0);
  EXPECT_EQ(found.call_count, 3u);
  EXPECT_EQ(found.op, BP_OP_ADD);
  EXPECT_EQ(found.source, BP_KERNEL_NATIVE);
  EXPECT_NE(std::string(found.text).find("add.tensors takes b as a tensor alone"),
            std::string::npos)
      << found.text;
}

TEST_F(ReasonsOfTarget, StructOfAnotherSizeIsRefused) {
  bp_kernel kernel = make_kernel("add.tensors");
  kernel.flags &= ~bp_kernel_flags{BP_KERNEL_TAKES_SCALAR};
  load({&kernel});
  call_.args.b = nullptr;
  call_.args.b_scalar = {BP_F64, 0, std::bit_cast<uint64_t>(2.0)};
  launch(BP_OP_ADD, &call_.args);
  bp_dispatch_reason found{.struct_size = 8, .struct_type = BP_STRUCT_DISPATCH_REASON};
  EXPECT_EQ(bp_target_reason(target_, 0, &found), BP_INCOMPATIBLE);
  EXPECT_EQ(bp_target_reason(target_, 0, nullptr), BP_INVALID_ARGUMENT);
}

TEST(Reasons, CallsOfOneTextAreOneReason) {
  Reasons reasons;
  const int calls = 0, other_calls = 0, kernel = 0;
  Reason& first = reasons.add({&calls, &kernel}, 5, BP_KERNEL_DECOMPOSED, "no kernel");
  EXPECT_EQ(&reasons.add({&other_calls, &kernel}, 5, BP_KERNEL_DECOMPOSED, "no kernel"), &first);
  EXPECT_NE(&reasons.add({&calls, &kernel, 1}, 5, BP_KERNEL_DECOMPOSED, "odd"), &first);
  EXPECT_EQ(reasons.find({&other_calls, &kernel}), &first);
  EXPECT_EQ(reasons.find({&other_calls, &kernel, 1}), nullptr);
  EXPECT_EQ(reasons.count(), 2u);
}

TEST(Reasons, LastReasonStandsForAllThatDoNotFit) {
  Reasons reasons;
  const int kernel = 0;
  for (uint64_t i = 0; i < Reasons::kMaxCauses + 100; ++i) {
    reasons.add({&reasons, &kernel, i}, 5, BP_KERNEL_DECOMPOSED, std::to_string(i))
        .call_count.fetch_add(1);
  }
  ASSERT_EQ(reasons.count(), Reasons::kMaxReasons);
  const Reason& last = *reasons.at(Reasons::kMaxReasons - 1);
  EXPECT_EQ(last.op, 0u);
  EXPECT_EQ(last.source, 0u);
  EXPECT_EQ(last.call_count, Reasons::kMaxCauses + 100 - (Reasons::kMaxReasons - 1));
  EXPECT_EQ(reasons.at(Reasons::kMaxReasons), nullptr);
}

TEST(Reasons, ThreadsShareThem) {
  Reasons reasons;
  const int kernel = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < 1000; ++i) {
        const Reasons::Cause cause{&reasons, &kernel, i % 7};
        Reason* reason = reasons.find(cause);
        if (reason == nullptr) reason = &reasons.add(cause, 5, 1, std::to_string(i % 7));
        reason->call_count.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = 0;
  for (uint64_t i = 0; i < reasons.count(); ++i) sum += reasons.at(i)->call_count;
  EXPECT_EQ(reasons.count(), 7u);
  EXPECT_EQ(sum, 4000u);
}

}  // namespace
}  // namespace bp::core
