// Tests the question for the kernels of a call and of the parts of its decomposition.
#include <gtest/gtest.h>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// The decomposition of mean is a sum, which is divided and copied.
class CheckKernels : public testing::Test {
 protected:
  void load(std::vector<const bp_kernel*> kernels, bp_registry_flags flags = 0) {
    r = std::make_unique<TestRegistry>(flags);
    fake.kernels = std::move(kernels);
    ASSERT_EQ(fake.load(r->registry), BP_OK) << bp_error_text();
    target = r->target();
  }

  bp_status ask(bp_kernel_sources sources = 0) const {
    return bp_op_check_kernels(target, 0, sources, BP_OP_MEAN, &mean);
  }
  bool finds_mean() const {
    bp_kernel_choice choice{};
    return bp_kernel_find(target, 0, 0, BP_OP_MEAN, &mean, &choice) == BP_OK;
  }

  // A kernel of the device must not run for a question.
  static bp_kernel kernel_of(const char* name, uint32_t op, uint32_t args_size_bytes) {
    bp_kernel kernel = make_kernel(name, op, args_size_bytes);
    kernel.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
      ADD_FAILURE() << "a kernel runs";
      return BP_INTERNAL;
    };
    return kernel;
  }

  bp_kernel sum = kernel_of("sum", BP_OP_SUM, sizeof(bp_sum_args));
  bp_kernel divide = kernel_of("divide", BP_OP_DIV, sizeof(bp_div_args));
  bp_kernel copy = kernel_of("copy", BP_OP_COPY, sizeof(bp_copy_args));
  bp_kernel whole = kernel_of("mean", BP_OP_MEAN, sizeof(bp_mean_args));
  FakeBackend fake;  // It outlives the registry.
  std::unique_ptr<TestRegistry> r;
  const bp_target* target = nullptr;
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1}, row[1] = {2}, one[1] = {1}, axes[1] = {1};
  bp_tensor x{.shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  bp_tensor y{.shape = row, .strides = one, .ndim = 1, .dtype = BP_F32};
  bp_mean_args mean{
      .struct_size = sizeof(bp_mean_args), .x = &x, .y = &y, .axes_count = 1, .axes = axes};
};

TEST_F(CheckKernels, AcceptsAKernelOfTheBackend) {
  load({&whole});
  EXPECT_EQ(ask(), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(BP_KERNEL_NATIVE), BP_OK) << bp_error_text();
}

TEST_F(CheckKernels, FindsThePartsOfADecomposition) {
  load({&sum, &divide, &copy});
  EXPECT_EQ(ask(), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(BP_KERNEL_NATIVE | BP_KERNEL_DECOMPOSED), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(BP_KERNEL_NATIVE), BP_UNSUPPORTED);
  EXPECT_EQ(fake.devices[0].live_buffers, 0) << "a question takes no memory";
  EXPECT_EQ(fake.fills, 0);
}

TEST_F(CheckKernels, NamesThePartWithoutAKernel) {
  load({&sum, &copy});
  EXPECT_TRUE(finds_mean()) << "the choice alone does not look at the parts";
  EXPECT_EQ(ask(), BP_UNSUPPORTED);
  const std::string text = bp_error_text();
  EXPECT_NE(text.find("mean runs as other ops, and one has no kernel"), std::string::npos) << text;
  EXPECT_NE(text.find("div("), std::string::npos) << text;
}

// The kernel takes f64 alone, and the sum of the decomposition is one of f32.
TEST_F(CheckKernels, AsksForThePartInItsOwnDtypes) {
  const bp_dtype rows[] = {BP_F64};
  sum.dtype_rows = rows;
  sum.dtype_row_count = sum.dtype_count = 1;
  load({&sum, &divide, &copy});
  EXPECT_EQ(ask(), BP_UNSUPPORTED);
}

TEST_F(CheckKernels, LetsThePartsFallBackToTheHostWhereThatIsAllowed) {
  bp_kernel on_host = kernel_of("host", BP_OP_DIV, sizeof(bp_div_args));
  FakeBackend host("acme.host", 1, BP_DEVICE_HOST);
  host.kernels = {&on_host};
  load({&sum, &copy});
  ASSERT_EQ(host.load(r->registry), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(BP_KERNEL_NATIVE | BP_KERNEL_DECOMPOSED), BP_UNSUPPORTED);
  r.reset();  // The backend of the host is older.
}

TEST_F(CheckKernels, FindsNoKernelOnAHostThatHasNone) {
  FakeBackend host("acme.host", 1, BP_DEVICE_HOST);
  load({&sum, &copy});
  ASSERT_EQ(host.load(r->registry), BP_OK) << bp_error_text();
  EXPECT_EQ(ask(), BP_UNSUPPORTED);
  r.reset();
}

TEST_F(CheckKernels, RefusesWhatNoCallMayBe) {
  load({&whole});
  x.dtype = 0xFFFF;
  EXPECT_NE(ask(), BP_OK);
  EXPECT_EQ(bp_op_check_kernels(target, 1u << 31, 0, BP_OP_MEAN, &mean), BP_UNSUPPORTED);
  EXPECT_EQ(bp_op_check_kernels(target, 0, 0, 9999, &mean), BP_NOT_FOUND);
}

}  // namespace
}  // namespace bp::core
