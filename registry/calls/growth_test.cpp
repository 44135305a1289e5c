// Tests that kernels of earlier and later revisions serve an op whose frame has grown. No op has
// grown yet, so the row of the op is made here.
#include <gtest/gtest.h>

#include "registry/calls/claims.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// The frame of add after revision 5 appended `scale` and a value to an enumeration, and revision 7
// appended `bias`.
struct GrownArgs {
  bp_add_args first;
  const bp_tensor* scale;
  bp_scalar scale_scalar;
  uint32_t mode, reserved_0;
  const bp_tensor* bias;
};

constexpr uint32_t kFirstSize = sizeof(bp_add_args), kSecondSize = offsetof(GrownArgs, bias),
                   kThirdSize = sizeof(GrownArgs);
constexpr LaterValue kLaterValues[] = {{offsetof(GrownArgs, mode), 2, 7, "mode", "soft"}};

OpRow grown_row() {
  OpRow row = *find_op(BP_OP_ADD);
  row.frame_size_bytes = kThirdSize;
  row.sizes[1] = {5, kSecondSize};
  row.sizes[2] = {7, kThirdSize};
  row.size_count = 3;
  row.later_values = kLaterValues;
  TensorArgument& scale = row.tensors[row.tensor_count++];
  scale = {.name = "scale",
           .offset = offsetof(GrownArgs, scale),
           .kind = Kind::scalar_tensor,
           .may_be_absent = true,
           .dtype = BP_F64};
  TensorArgument& bias = row.tensors[row.tensor_count++];
  bias = {.name = "bias",
          .offset = offsetof(GrownArgs, bias),
          .kind = Kind::tensor_opt,
          .is_free = true,
          .may_be_absent = true};
  return row;
}

class Growth : public testing::Test {
 protected:
  Growth() {
    args.first = call.args;
    args.first.struct_size = sizeof(args);
  }

  bp_kernel kernel(uint32_t revision) const {
    bp_kernel made = make_kernel("grown");
    made.spec_revision = revision;
    made.args_size_bytes = row.size_in(revision);
    return made;
  }

  Key key() const {
    Key made;
    bool has_null = false;
    EXPECT_EQ(read_call(row, 0, &args, made, &has_null), BP_OK) << bp_error_text();
    return made;
  }

  const OpRow row = grown_row();
  AddCall call;
  GrownArgs args{};
};

TEST_F(Growth, GivesTheSizeOfTheLastRevisionThatChangedTheFrame) {
  EXPECT_EQ(row.size_in(2), 0u);
  EXPECT_EQ(row.size_in(3), kFirstSize);
  EXPECT_EQ(row.size_in(4), kFirstSize);
  EXPECT_EQ(row.size_in(5), kSecondSize);
  EXPECT_EQ(row.size_in(6), kSecondSize);
  EXPECT_EQ(row.size_in(7), kThirdSize);
}

TEST_F(Growth, TakesKernelsOfEachRevision) {
  bp_kernel oldest = kernel(3);
  EXPECT_EQ(revision_defect(row, oldest), "");
  oldest.args_size_bytes = kSecondSize;
  EXPECT_EQ(revision_defect(row, oldest), "args_size_bytes is " + std::to_string(kSecondSize) +
                                              ", and the frame of add has 56 bytes in revision 3")
      << "the kernel was compiled again, and its author read nothing";
}

TEST_F(Growth, CountsTheFreeArgumentsWithinTheKernelsFrame) {
  const bp_dtype dtypes[] = {BP_F32, BP_F64};
  bp_kernel oldest = kernel(3);
  oldest.dtype_rows = dtypes;
  oldest.dtype_row_count = oldest.dtype_count = 1;
  EXPECT_EQ(revision_defect(row, oldest), "");
  oldest.dtype_count = 2;
  EXPECT_EQ(revision_defect(row, oldest), "dtype_count is 2, add has 1 free dtypes");
}

TEST_F(Growth, HandsALongerFrameWithoutMoreToAnOldKernel) {
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  EXPECT_EQ(fit_frame(row, &args, kFirstSize, storage, &offset), &args) << "it is not copied";
  EXPECT_EQ(claims_refusal(row, kernel(3), key()), "");
}

TEST_F(Growth, LengthensTheFrameOfAnOldCaller) {
  call.args.struct_size = kFirstSize;
  alignas(8) std::byte storage[kMaxFrameBytes];
  const auto* const known = static_cast<const GrownArgs*>(known_frame(row, &call.args, storage));
  ASSERT_NE(known, nullptr) << bp_error_text();
  EXPECT_EQ(known->first.struct_size, kThirdSize);
  EXPECT_EQ(known->first.a, call.args.a);
  EXPECT_EQ(known->bias, nullptr);
  uint32_t offset = 0;
  EXPECT_EQ(fit_frame(row, &call.args, kThirdSize, storage, &offset), storage);
}

TEST_F(Growth, RefusesAFrameThatIsShorterThanTheFirst) {
  call.args.struct_size = kFirstSize - 8;
  alignas(8) std::byte storage[kMaxFrameBytes];
  EXPECT_EQ(known_frame(row, &call.args, storage), nullptr);
  EXPECT_STREQ(bp_error_text(), "add: the frame has 48 bytes; in the first release it had 56");
}

TEST_F(Growth, NamesATensorThatAnOldKernelDoesNotKnow) {
  args.bias = &call.a;
  EXPECT_EQ(claims_refusal(row, kernel(3), key()),
            "bias is given; the kernel was written for revision 3");
  EXPECT_EQ(claims_refusal(row, kernel(5), key()),
            "bias is given; the kernel was written for revision 5");
  EXPECT_EQ(claims_refusal(row, kernel(7), key()), "");
}

TEST_F(Growth, NamesAScalarThatAnOldKernelDoesNotKnow) {
  EXPECT_FALSE(needs_scalar_tensors(row, kernel(7), key())) << "zero is neither";
  args.scale_scalar = {.dtype = BP_F64, .bits = 1};
  EXPECT_EQ(claims_refusal(row, kernel(3), key()),
            "scale is given; the kernel was written for revision 3");
  EXPECT_EQ(claims_refusal(row, kernel(5), key()), "");
}

TEST_F(Growth, TellsWhichByteIsNotKnown) {
  args.mode = 1;
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  EXPECT_EQ(fit_frame(row, &args, kFirstSize, storage, &offset), nullptr);
  EXPECT_EQ(offset, offsetof(GrownArgs, mode));
}

TEST_F(Growth, RefusesAValueThatCameAfterTheKernel) {
  args.mode = 1;
  EXPECT_EQ(later_value_refusal(row, kernel(5), &args), "");
  EXPECT_FALSE(knows_all_values(row, kernel(5)));
  args.mode = 2;
  EXPECT_EQ(later_value_refusal(row, kernel(5), &args),
            "mode is soft, which revision 7 brought; the kernel was written for revision 5");
  EXPECT_EQ(later_value_refusal(row, kernel(7), &args), "");
  EXPECT_TRUE(knows_all_values(row, kernel(7)));
}

TEST_F(Growth, RefusesAValueThatTheHostDoesNotKnow) {
  const int64_t shape[] = {1, 1}, strides[] = {1, 1};
  const bp_tensor tensor{.shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  bp_linear_args linear{.struct_size = sizeof(linear),
                        .x = &tensor,
                        .weight = &tensor,
                        .y = &tensor,
                        .activation = BP_LINEAR_ACTIVATION_SILU};
  const OpRow& linear_row = *find_op(BP_OP_LINEAR);
  Key first, second;
  bool has_null = false;
  EXPECT_EQ(read_call(linear_row, 0, &linear, first, &has_null), BP_OK) << bp_error_text();
  linear.activation = BP_LINEAR_ACTIVATION_SILU + 1;
  EXPECT_EQ(read_call(linear_row, 0, &linear, second, &has_null), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "linear: activation is 5; this host knows the values up to 4");
}

TEST_F(Growth, ReadsNoAttributesOfMostOps) {
  EXPECT_FALSE(find_op(BP_OP_ADD)->has_read_attributes());
  EXPECT_TRUE(find_op(BP_OP_LINEAR)->has_read_attributes());
  EXPECT_TRUE(find_op(BP_OP_SUM)->has_read_attributes()) << "it has a list of axes";
}

TEST_F(Growth, ComparesNoDtypeOfAnAbsentArgument) {
  const bp_dtype dtypes[] = {BP_F32, BP_F64};
  bp_kernel newest = kernel(7);
  newest.dtype_rows = dtypes;
  newest.dtype_row_count = 1;
  newest.dtype_count = 2;
  EXPECT_EQ(claims_refusal(row, newest, key()), "");
  args.bias = &call.a;
  EXPECT_EQ(claims_refusal(row, newest, key()), "dtypes are not claimed: a f32, bias f32");
}

}  // namespace
}  // namespace bp::core
