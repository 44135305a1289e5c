#include <gtest/gtest.h>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {
namespace {

TEST(Names, OfDtypesLeadBack) {
  for (bp_dtype dtype = 1; dtype <= BP_U2; ++dtype) {
    EXPECT_EQ(bp_dtype_from_name(bp_dtype_name(dtype)), dtype);
    EXPECT_NE(bp_dtype_bits(dtype), 0);
  }
  EXPECT_STREQ(bp_dtype_name(BP_BF16), "bf16");
  EXPECT_EQ(bp_dtype_bits(BP_F32), 32);
  EXPECT_EQ(bp_dtype_bits(BP_I4), 4);
  EXPECT_EQ(bp_dtype_bits(BP_F6E3M2), 6);
  EXPECT_EQ(bp_dtype_bits(BP_U2), 2);
  EXPECT_EQ(bp_dtype_from_name("f8e8m0fnu"), BP_F8E8M0FNU);
  EXPECT_EQ(bp_dtype_name(0), nullptr);
  EXPECT_EQ(bp_dtype_name(99), nullptr);
  EXPECT_EQ(bp_dtype_from_name("f33"), 0);
  EXPECT_EQ(bp_dtype_from_name(nullptr), 0);
}

TEST(Names, OfOpsLeadBack) {
  for (const OpRow& row : op_rows()) EXPECT_EQ(bp_op_from_name(bp_op_name(row.op)), row.op);
  EXPECT_STREQ(bp_op_name(BP_OP_SOFTMAX), "softmax");
  EXPECT_EQ(bp_op_name(0), nullptr);
  EXPECT_EQ(bp_op_name(UINT32_MAX), nullptr);
  EXPECT_EQ(bp_op_from_name("softmux"), 0);
}

TEST(Names, OfStatusesAreForPeople) {
  EXPECT_STREQ(bp_status_name(BP_OK), "ok");
  EXPECT_STREQ(bp_status_name(BP_INTERNAL), "internal");
  EXPECT_STREQ(bp_status_name(BP_DATA_FAILURE), "data failure");
  EXPECT_STREQ(bp_status_name(BP_STREAM_FAILED), "stream failed");
  EXPECT_STREQ(bp_status_name(BP_STREAM_FAILED + 1), "unknown status");
  EXPECT_STREQ(bp_status_name(-1), "vendor status");
  EXPECT_STREQ(bp_status_name(999), "unknown status");
}

TEST(OpRows, FollowTheFrames) {
  const OpRow& add = *find_op(BP_OP_ADD);
  ASSERT_EQ(add.tensor_count, 3);
  EXPECT_EQ(add.free_count, 1);
  EXPECT_EQ(add.tensors[1].kind, Kind::operand);
  EXPECT_EQ(add.tensors[1].offset, offsetof(bp_add_args, b));
  EXPECT_EQ(add.tensors[1].like, 0);
  EXPECT_TRUE(add.tensors[2].is_output());
  EXPECT_EQ(find_op(BP_OP_COPY)->free_count, 2);
  EXPECT_EQ(find_op(BP_OP_SGD_STEP)->tensors[3].dtype, BP_F64);
}

}  // namespace
}  // namespace bp::core
