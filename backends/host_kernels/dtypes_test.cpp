// Tests the conversion of a dtype to the type of its elements. Each list takes all its dtypes, and
// no other.
#include "backends/host_kernels/dtypes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>

#include "backplane/shell/shape.hpp"

namespace bp::kernels {
namespace {

// Expects that a dtype of a list gives elements of its size, and that any other dtype is refused by
// its number.
template <typename With>
void expect_list(std::span<const bp_dtype> listed, const With& with) {
  for (bp_dtype dtype = 0; dtype < 64; ++dtype) {
    SCOPED_TRACE(dtype);
    if (std::ranges::find(listed, dtype) != listed.end()) {
      EXPECT_EQ(static_cast<int64_t>(with(dtype)), dtype_size_bytes(dtype));
      continue;
    }
    try {
      with(dtype);
      ADD_FAILURE() << "is not listed, and was taken for another dtype";
    } catch (const StatusError& error) {
      EXPECT_EQ(error.status(), BP_UNSUPPORTED);
      EXPECT_NE(std::string(error.what()).find(std::to_string(dtype)), std::string::npos);
    }
  }
}

constexpr auto kSize = []<typename T>(T) { return sizeof(T); };

TEST(Dtypes, FloatsAndNoOthers) {
  expect_list(kFloatDtypes, [](bp_dtype dtype) { return with_float(dtype, kSize); });
}

TEST(Dtypes, NumbersAndNoOthers) {
  expect_list(kNumberDtypes, [](bp_dtype dtype) { return with_number(dtype, kSize); });
}

TEST(Dtypes, AnythingThatMovesAndNoOthers) {
  expect_list(kAnyDtypes, [](bp_dtype dtype) { return with_any(dtype, kSize); });
}

TEST(Dtypes, OneOfAListAndNoOthers) {
  expect_list(kIndexDtypes,
              [](bp_dtype dtype) { return dtype_size_bytes(one_of(kIndexDtypes, dtype)); });
}

TEST(Dtypes, OfOneSizeAreToldApart) {
  const auto is_bfloat = []<typename T>(T) { return std::is_same_v<T, BFloat16>; };
  EXPECT_TRUE(with_float(BP_BF16, is_bfloat));
  EXPECT_FALSE(with_float(BP_F16, is_bfloat));
  const auto is_float = []<typename T>(T) { return std::is_floating_point_v<T>; };
  EXPECT_TRUE(with_any(BP_F32, is_float));
  EXPECT_FALSE(with_any(BP_I32, is_float));
  EXPECT_FALSE(with_any(BP_I64, is_float));
}

}  // namespace
}  // namespace bp::kernels
