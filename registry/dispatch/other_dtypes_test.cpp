// Tests calls that the host runs in other dtypes, on a real host.
#include <gtest/gtest.h>

#include <bit>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/service_tensors.hpp"

namespace bp {

using Complex = std::complex<float>;
template <>
inline constexpr bp_dtype kDtypeOf<Complex> = BP_C64;
using WideComplex = std::complex<double>;
template <>
inline constexpr bp_dtype kDtypeOf<WideComplex> = BP_C128;
template <>
inline constexpr bp_dtype kDtypeOf<uint8_t> = BP_U8;
template <>
inline constexpr bp_dtype kDtypeOf<int8_t> = BP_I8;
template <>
inline constexpr bp_dtype kDtypeOf<int32_t> = BP_I32;

namespace {

class OtherDtypes : public testing::Test {
 protected:
  // Launches a call that no kernel of the device takes.
  template <typename Args>
  void launch(uint32_t op, Args args) {
    args.struct_size = sizeof(Args);
    ASSERT_EQ(bp_op_check(op, &args), BP_OK) << bp_error_text();
    const bp_dispatch_statistics before = statistics(*host, op);
    ASSERT_EQ(bp_op_launch(host, nullptr, 0, op, &args), BP_OK) << bp_error_text();
    // A call by width is a launch of the same op, so it counts as a native launch too.
    EXPECT_EQ(statistics(*host, op).decomposed_count, before.decomposed_count + 1);
  }

  template <typename Args>
  std::string explanation(uint32_t op, Args args) {
    args.struct_size = sizeof(Args);
    std::string text(4096, '\0');
    uint64_t size = 0;
    EXPECT_EQ(bp_kernel_explain(host, 0, op, &args, text.size(), text.data(), &size), BP_OK);
    return text.substr(0, text.find('\0'));
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
};

TEST_F(OtherDtypes, MoveComplexNumbersAsIntegersOfTheirWidth) {
  Tensor<Complex> x(*host, {2, 3}), y(*host, {2, 2});
  Tensor<int64_t> indices(*host, {2, 2});
  x.set({{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}});
  indices.set({2, 0, 1, 1});
  launch(BP_OP_GATHER,
         bp_gather_args{.x = x.get(), .indices = indices.get(), .y = y.get(), .axis = 1});
  EXPECT_EQ(y.elements(), (std::vector<Complex>{{5, 6}, {1, 2}, {9, 10}, {9, 10}}));
}

TEST_F(OtherDtypes, MoveListsOfTensors) {
  Tensor<Complex> a(*host, {2}), b(*host, {1}), y(*host, {3});
  a.set({{1, 2}, {3, 4}});
  b.set({{5, 6}});
  const bp_tensor* const xs[] = {a.get(), b.get()};
  launch(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = y.get(), .axis = 0});
  EXPECT_EQ(y.elements(), (std::vector<Complex>{{1, 2}, {3, 4}, {5, 6}}));
}

TEST_F(OtherDtypes, FillWithAComplexNumberInTheCall) {
  Tensor<Complex> y(*host, {3});
  const bp_scalar value = {.dtype = BP_C128,
                           .bits = std::bit_cast<uint64_t>(1.5),
                           .imaginary_bits = std::bit_cast<uint64_t>(-2.0)};
  launch(BP_OP_FILL, bp_fill_args{.y = y.get(), .value_scalar = value});
  EXPECT_EQ(y.elements(), std::vector<Complex>(3, {1.5, -2}));
}

TEST_F(OtherDtypes, MoveElementsOf16BytesAsTwoHalves) {
  Tensor<WideComplex> table(*host, {3, 2}), y(*host, {2, 2}), z(*host, {2});
  Tensor<int64_t> indices(*host, {2});
  table.set({{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}});
  indices.set({2, 0});
  launch(BP_OP_EMBEDDING,
         bp_embedding_args{.weight = table.get(), .indices = indices.get(), .y = y.get()});
  EXPECT_EQ(y.elements(), (std::vector<WideComplex>{{9, 10}, {11, 12}, {1, 2}, {3, 4}}));
  const bp_scalar value = {.dtype = BP_C128,
                           .bits = std::bit_cast<uint64_t>(1.5),
                           .imaginary_bits = std::bit_cast<uint64_t>(-2.0)};
  launch(BP_OP_FILL, bp_fill_args{.y = z.get(), .value_scalar = value});
  EXPECT_EQ(z.elements(), std::vector<WideComplex>(2, {1.5, -2}));
}

TEST_F(OtherDtypes, MoveStridedElementsOf16Bytes) {
  Tensor<WideComplex> x(*host, {2, 2}, {1, 2}, 1, 6), y(*host, {2, 2});
  x.set({{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  launch(BP_OP_COPY, bp_copy_args{.x = x.get(), .y = y.get()});
  EXPECT_EQ(y.elements(), x.elements());
}

TEST_F(OtherDtypes, CopyDoesNotConvertComplexNumbers) {
  Tensor<Complex> x(*host, {3});
  Tensor<float> y(*host, {3});
  const bp_copy_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get()};
  EXPECT_EQ(bp_op_launch(host, nullptr, 0, BP_OP_COPY, &args), BP_UNSUPPORTED);
  EXPECT_NE(explanation(BP_OP_COPY, args).find("by width: the call converts its elements"),
            std::string::npos)
      << explanation(BP_OP_COPY, args);
}

TEST_F(OtherDtypes, AddSmallIntegersThatWrap) {
  Tensor<int8_t> a(*host, {4}), b(*host, {4}), y(*host, {4});
  a.set({127, -128, 3, -1});
  b.set({1, -1, 4, 1});
  launch(BP_OP_ADD, bp_add_args{.a = a.get(), .b = b.get(), .y = y.get()});
  EXPECT_EQ(y.elements(), (std::vector<int8_t>{-128, 127, 7, 0}));
}

TEST_F(OtherDtypes, ConvertAnOperandInTheCallToTheSmallInteger) {
  Tensor<uint8_t> a(*host, {3}), y(*host, {3});
  a.set({0, 43, 200});
  const bp_scalar b = {.dtype = BP_I64, .bits = 300};  // It is 44 in u8.
  launch(BP_OP_MAXIMUM, bp_maximum_args{.a = a.get(), .b_scalar = b, .y = y.get()});
  EXPECT_EQ(y.elements(), (std::vector<uint8_t>{44, 44, 200}));
}

TEST_F(OtherDtypes, SortSmallIntegersAndGiveIndices) {
  Tensor<uint8_t> x(*host, {4}), y(*host, {4});
  Tensor<int32_t> indices(*host, {4});
  x.set({200, 3, 255, 0});
  launch(BP_OP_SORT, bp_sort_args{.x = x.get(), .y = y.get(), .indices = indices.get()});
  EXPECT_EQ(y.elements(), (std::vector<uint8_t>{0, 3, 200, 255}));
  EXPECT_EQ(indices.elements(), (std::vector<int32_t>{3, 1, 0, 2}));
}

}  // namespace
}  // namespace bp
