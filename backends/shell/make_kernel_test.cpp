#include "backplane/shell/make_kernel.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "backplane/ops.h"
#include "backplane/shell/entry.hpp"

namespace bp {
namespace {

bp_host host_that_keeps(std::string& text) {
  bp_host host{};
  host.self = &text;
  host.set_error = [](void* self, bp_status status, const char* reason) {
    *static_cast<std::string*>(self) = reason;
    return status;
  };
  return host;
}

// The state of a kernel is a host. Every device except NULL is a device of the backend.
class Env {
 public:
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device*, Body&& body) {
    return guarded(*static_cast<const bp_host*>(kernel.state), [&] { return body(Env()); });
  }
  static std::optional<Env> find(const bp_kernel&, bp_device* device) {
    return device == nullptr ? std::nullopt : std::optional<Env>(Env());
  }
  uint64_t bytes() const { return 24; }
};

struct Launch {
  bp_launch_flags flags() const { return its_flags; }
  bp_status refuse(bp_status status, const std::string& its_text) {
    text = its_text;
    return status;
  }
  bp_launch_flags its_flags = 0;
  std::string text;
};

bp_reason supports(const bp_neg_args& args) { return args.x == nullptr ? "x is NULL" : nullptr; }
bp_reason supports_here(const bp_neg_args&, const Env& env) {
  return env.bytes() == 24 ? nullptr : "too small";
}
bp_reason supports_small(const bp_neg_args& args) {
  return element_count(*args.x) > 8 ? "x is large" : nullptr;
}
uint64_t workspace(const bp_neg_args&, const Env& env) { return env.bytes(); }
uint64_t failing_workspace(const bp_neg_args&, const Env&) {
  throw StatusError(BP_OUT_OF_MEMORY, "no room");
}

constexpr bp_dtype kDtypes[] = {BP_F32};
constexpr bp_kernel kRow = kernel_row("neg_of_test", BP_OP_NEG, kDtypes);

TEST(TypedKernel, FillsInWhatFollowsFromTheFrame) {
  constexpr bp_kernel kPlain = typed_kernel<Env, bp_neg_args, nullptr, nullptr>(kRow);
  EXPECT_EQ(kPlain.struct_size, sizeof(bp_kernel));
  EXPECT_EQ(kPlain.struct_type, BP_STRUCT_KERNEL + 0u);
  EXPECT_EQ(kPlain.args_size_bytes, sizeof(bp_neg_args));
  EXPECT_NE(kPlain.flags & BP_KERNEL_CAPTURABLE, 0u);
  EXPECT_TRUE(kPlain.supports == nullptr && kPlain.workspace_size == nullptr);
}

TEST(TypedKernel, AsksSupportsWithOrWithoutTheDevice) {
  const bp_neg_args args{};
  constexpr bp_kernel kAsked = typed_kernel<Env, bp_neg_args, supports, nullptr>(kRow);
  EXPECT_STREQ(kAsked.supports(&kAsked, nullptr, 0, &args), "x is NULL");
  EXPECT_STREQ(kAsked.supports(&kAsked, nullptr, 1u << 30, &args), "a launch flag is not known");
  constexpr bp_kernel kHere = typed_kernel<Env, bp_neg_args, supports_here, nullptr>(kRow);
  int device = 0;
  EXPECT_EQ(kHere.supports(&kHere, reinterpret_cast<bp_device*>(&device), 0, &args), nullptr);
  EXPECT_STREQ(kHere.supports(&kHere, nullptr, 0, &args), "the device is not one of this backend");
}

TEST(TypedKernel, HasAReasonForMoreElementsThan64BitsCount) {
  constexpr bp_kernel kSmall = typed_kernel<Env, bp_neg_args, supports_small, nullptr>(kRow);
  const int64_t shape[2] = {int64_t{1} << 40, int64_t{1} << 40};
  const bp_tensor x{.shape = shape, .ndim = 2};
  const bp_neg_args args{.x = &x};
  EXPECT_STREQ(kSmall.supports(&kSmall, nullptr, 0, &args),
               "a tensor has more elements than 64 bits can count");
}

TEST(TypedKernel, TellsTheWorkspaceAndKeepsExceptionsInside) {
  std::string text;
  bp_host host = host_that_keeps(text);
  const bp_neg_args args{};
  bp_kernel row = typed_kernel<Env, bp_neg_args, nullptr, workspace>(kRow);
  row.state = &host;
  uint64_t required = 0, preferred = 0;
  ASSERT_EQ(row.workspace_size(&row, nullptr, 0, &args, &required, &preferred), BP_OK);
  EXPECT_EQ(required, 24u);
  EXPECT_EQ(preferred, 24u);
  ASSERT_EQ(row.workspace_size(&row, nullptr, 0, &args, nullptr, nullptr), BP_OK);
  row = typed_kernel<Env, bp_neg_args, nullptr, failing_workspace>(kRow);
  row.state = &host;
  EXPECT_EQ(row.workspace_size(&row, nullptr, 0, &args, &required, &preferred), BP_OUT_OF_MEMORY);
  EXPECT_EQ(text, "no room");
}

TEST(LaunchTyped, RefusesFlagsThatNoKernelKnows) {
  bp_neg_args args{};
  Launch launch;
  const auto run = [&] {
    return launch_typed<bp_neg_args>(kRow, &args, launch,
                                     [](const bp_neg_args&) { return bp_status{BP_ABORTED}; });
  };
  EXPECT_EQ(run(), BP_ABORTED) << "what the body returns";
  launch.its_flags = 1u << 30;
  EXPECT_EQ(run(), BP_UNSUPPORTED);
  EXPECT_EQ(launch.text, "neg_of_test: a launch flag is not known");
  launch.its_flags = BP_LAUNCH_DETERMINISTIC;
  args.flags = 1;
  EXPECT_EQ(run(), BP_UNSUPPORTED);
  EXPECT_EQ(launch.text, "neg_of_test: a flag of args is not known");
}

}  // namespace
}  // namespace bp
