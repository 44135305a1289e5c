#include "backplane/shell/kernel_row.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bp {
namespace {

std::vector<bp_dtype> dtypes_of(const bp_kernel& row) {
  return {row.dtype_rows, row.dtype_rows + row.dtype_row_count * row.dtype_count};
}

constexpr bp_dtype kTwo[] = {BP_F32, BP_F16};
constexpr auto kIndexed = with_indices(kTwo);
constexpr auto kPairs = pairs_of(kTwo, kIndexDtypes);

TEST(KernelRow, ClaimsDtypesOfOneFreeArgument) {
  const bp_kernel row = kernel_row("neg", 100, kTwo, BP_KERNEL_IN_PLACE);
  EXPECT_STREQ(row.name, "neg");
  EXPECT_EQ(row.op, 100u);
  EXPECT_EQ(row.flags, BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE);
  EXPECT_EQ(row.layouts, BP_LAYOUT_ANY);
  EXPECT_EQ(row.supports_ignores, 0u);
  EXPECT_EQ(row.dtype_count, 1u);
  EXPECT_EQ(dtypes_of(row), (std::vector<bp_dtype>{BP_F32, BP_F16}));
}

TEST(KernelRow, ClaimsRowsOfSeveralFreeArguments) {
  const bp_kernel row = kernel_row("gather", 8, {kIndexed, 2});
  EXPECT_EQ(row.dtype_row_count, 4u);
  EXPECT_EQ(row.dtype_count, 2u);
  EXPECT_EQ(dtypes_of(row), (std::vector<bp_dtype>{BP_F32, BP_I64, BP_F32, BP_I32, BP_F16, BP_I64,
                                                   BP_F16, BP_I32}));
  EXPECT_EQ(kIndexed, kPairs);
}

TEST(KernelRow, ClaimsNoDtypeWhereNoneIsFree) {
  const bp_kernel row = kernel_row("random_bits", 900, {});
  EXPECT_EQ(row.dtype_rows, nullptr);
  EXPECT_EQ(row.dtype_row_count, 0u);
  EXPECT_EQ(row.dtype_count, 0u);
}

TEST(KernelRow, SaysWhatItsAnswerDoesNotDependOn) {
  EXPECT_EQ(kernel_row_of_any_shape("linear", 401, kTwo).supports_ignores,
            BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ALIGNMENT);
}

}  // namespace
}  // namespace bp
