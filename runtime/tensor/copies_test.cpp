// Tests handles, views of views, writes through strides, and copies between devices and the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/tensor.hpp"
#include "registry/tests/comma_locale.hpp"
#include "runtime/tensor/tensor_impl.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

constexpr const char* kEmpty = "an empty tensor was used: it was never given a value";

class Copies : public testing::Test {
 protected:
  static Floats counted(int64_t count) {
    Floats values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
    return values;
  }

  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = arange(9, BP_F32).reshape({3, 3});
};

// ---- Handles -----------------------------------------------------------------------------------

TEST_F(Copies, AreHandlesOfOneTensorUntilTheyAreMovedFrom) {
  Tensor first = x;
  EXPECT_EQ(first.impl(), x.impl());
  Tensor second = std::move(first);
  EXPECT_EQ(second.impl(), x.impl());
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): this is what is tested.
  EXPECT_EQ(message_of([&] { first.to_vector<float>(); }), kEmpty);
  first = second;
  EXPECT_EQ(first.impl(), x.impl());
}

TEST_F(Copies, SurviveTheirAssignmentToThemselves) {
  Tensor own = zeros({2}, BP_F32);
  Tensor& same = own;
  own = same;
  EXPECT_EQ(own.to_vector<float>(), (Floats{0, 0}));
  own = std::move(same);
  EXPECT_EQ(own.to_vector<float>(), (Floats{0, 0}));
}

TEST_F(Copies, OfAnEmptyHandleAreRefusedByEveryCall) {
  const Tensor none;
  const Tensor copied = none;
  EXPECT_FALSE(copied);
  const std::vector<std::function<void()>> calls = {[&] { none.ndim(); },
                                                    [&] { none.device(); },
                                                    [&] { none.version(); },
                                                    [&] { none.clone(); },
                                                    [&] { none.view({1}); },
                                                    [&] { none.expand({1}); },
                                                    [&] { none.as_strided({1}, {1}); },
                                                    [&] { none.copy_from(x); },
                                                    [&] { none.grad(); },
                                                    [&] { none.set_grad({}); },
                                                    [&] { none.set_requires_grad(); },
                                                    [&] { none.backward(); },
                                                    [&] { none.detach(); },
                                                    [&] { none.to(BP_F64); },
                                                    [&] { none.record_stream(Stream(device)); },
                                                    [&] { none.item<float>(); }};
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(message_of(calls[i]), kEmpty) << i;
  EXPECT_EQ(message_of([&] { none.fill(1); }), "fill: y is empty; allowed: a tensor");
  EXPECT_THROW(x.copy_from(none), Error);
}

// ---- Views -------------------------------------------------------------------------------------

// Returns all ways to write 24 as three factors.
std::vector<Shape> shapes_of_24() {
  std::vector<Shape> shapes;
  for (int64_t a = 1; a <= 24; ++a) {
    for (int64_t b = 1; 24 % a == 0 && b <= 24 / a; ++b) {
      if (24 / a % b == 0) shapes.push_back({a, b, 24 / a / b});
    }
  }
  return shapes;
}

TEST_F(Copies, OfAReshapeHoldTheElementsInTheirOrderWhateverTheStrides) {
  const Tensor whole = arange(96, BP_F32).reshape({2, 3, 4, 4});
  const Tensor cube = whole.slice(3, 0, 4, 4).squeeze(3);  // (2, 3, 4), each element 4 apart.
  const Tensor row = arange(4, BP_F32).expand({2, 3, 4});
  int64_t shared_count = 0;
  for (const Tensor& given : {whole.select(3, 1), cube, row, arange(24, BP_F32).view({2, 3, 4})}) {
    for (const Shape& axes : {Shape{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}) {
      const Tensor turned = given.permute(axes);
      const Floats expected = turned.to_vector<float>();
      for (const Shape& shape : shapes_of_24()) {
        EXPECT_EQ(turned.reshape(shape).to_vector<float>(), expected)
            << to_string(IntList(axes)) << " as " << to_string(IntList(shape));
        try {
          const Tensor view = turned.view(shape);
          EXPECT_EQ(view.impl()->storage, given.impl()->storage);
          ++shared_count;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("needs a copy"), std::string::npos);
        }
      }
    }
  }
  EXPECT_GT(shared_count, 100) << "many of these need no copy";
}

TEST_F(Copies, OfTensorsWithoutElementsTakeOnlyShapesThatHaveNone) {
  const Tensor none = zeros({0, 3}, BP_F32);
  EXPECT_EQ(none.reshape({3, 0, 5}).shape(), IntList({3, 0, 5}));
  EXPECT_EQ(none.reshape({-1, 3}).shape(), IntList({0, 3}));
  EXPECT_EQ(none.transpose().reshape({0}).shape(), IntList({0}));
  EXPECT_EQ(message_of([&] {
              none.reshape({0, -1});
            }),
            "reshape: the shape (0, -1) does not have the elements of (0, 3)");
  EXPECT_EQ(message_of([&] { none.reshape({}); }),
            "reshape: the shape () does not have the elements of (0, 3)");
  EXPECT_EQ(message_of([&] { none.select(0, 0); }),
            "select: axis 0 has the extent 0; allowed: from 1");
  EXPECT_EQ(none.expand({2, 0, 3}).numel(), 0);
  EXPECT_EQ(none.clone().to(BP_I64).to_vector<int64_t>(), std::vector<int64_t>());
}

TEST_F(Copies, OfSlicesTakeEveryBoundAndStep) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  constexpr int64_t kNear = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(x.slice(0, kNear, kFar).to_vector<float>(), counted(9));
  EXPECT_EQ(x.slice(0, 1, kFar, kFar).to_vector<float>(), (Floats{3, 4, 5}));
  EXPECT_EQ(x.slice(0, 0, kFar, kFar).slice(0, 0, 1, kFar).to_vector<float>(), (Floats{0, 1, 2}));
  EXPECT_EQ(x.slice(1, -1, kFar, 2).to_vector<float>(), (Floats{2, 5, 8}));
  EXPECT_EQ(x.slice(0, 5, 7).shape(), IntList({0, 3}));
  EXPECT_EQ(x.slice(0, -1, -3).shape(), IntList({0, 3}));
  EXPECT_EQ(message_of([&] { x.slice(0, 0, 3, 0); }), "slice: step is 0; allowed: 1 <= step");
  EXPECT_EQ(message_of([&] { x.narrow(0, kNear, 1); }).find("narrow: start "), 0u);
  EXPECT_EQ(message_of([&] { x.narrow(0, 1, kFar); }).find("narrow: start 1 and length "), 0u);
  EXPECT_EQ(message_of([&] { x.select(0, 3); }), "select: index is 3; allowed: -3 <= index < 3");
}

TEST_F(Copies, OfStridedViewsCountFromTheViewAndReachItsWholeMemory) {
  const Tensor middle = x.select(0, 1);
  EXPECT_EQ(middle.as_strided({3}, {1}, -3).to_vector<float>(), (Floats{0, 1, 2}));
  EXPECT_EQ(middle.as_strided({3, 2}, {-1, 3}, 2).to_vector<float>(), (Floats{5, 8, 4, 7, 3, 6}));
  EXPECT_EQ(middle.as_strided({2, 3}, {0, 0}, 1).to_vector<float>(), Floats(6, 4));
  EXPECT_EQ(middle.as_strided({0, 3}, {100, 1}, 1000).shape(), IntList({0, 3}));
  EXPECT_NE(message_of([&] { middle.as_strided({3}, {-1}, -3); }).find("leave the memory of"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              x.as_strided({2, 2}, {1});
            }).find("have different lengths"),
            std::string::npos);
}

TEST_F(Copies, HaveAtMostEightAxes) {
  const Tensor deep = ones({1, 1, 1, 1, 1, 1, 1, 1}, BP_F32);
  EXPECT_EQ(deep.squeeze().item<float>(), 1);
  EXPECT_EQ(deep.flatten(2, 5).ndim(), 5);
  EXPECT_NE(message_of([&] { deep.unsqueeze(0); }).find("has more than 8 axes"), std::string::npos);
  EXPECT_NE(message_of([&] {
              deep.expand({1, 1, 1, 1, 1, 1, 1, 1, 1});
            }).find("expand: the shape"),
            std::string::npos);
}

TEST_F(Copies, AreFlattenedBetweenAnyTwoAxes) {
  const Tensor cube = arange(24, BP_F32).reshape({2, 3, 4});
  EXPECT_EQ(cube.flatten(1).shape(), IntList({2, 12}));
  EXPECT_EQ(cube.flatten(0, -2).shape(), IntList({6, 4}));
  EXPECT_EQ(cube.flatten(1, 1).shape(), IntList({2, 3, 4}));
  EXPECT_EQ(scalar(3, BP_F32).flatten().shape(), IntList({1}));
  EXPECT_EQ(cube.permute({2, 1, 0}).flatten().to_vector<float>(),
            cube.permute({2, 1, 0}).to_vector<float>());
  EXPECT_EQ(message_of([&] { cube.flatten(3); }), "flatten: first is 3; allowed: -3 <= first < 3");
}

// ---- Writes ------------------------------------------------------------------------------------

TEST_F(Copies, ReadEachElementBeforeTheyWriteIt) {
  x.copy_from(x.transpose());
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  const Tensor line = arange(6, BP_F32);
  line.slice(0, 1, 6).copy_from(line.slice(0, 0, 5));
  EXPECT_EQ(line.to_vector<float>(), (Floats{0, 0, 1, 2, 3, 4}));
  line.slice(0, 0, 5).copy_from(line.slice(0, 1, 6));
  EXPECT_EQ(line.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 4}));
  line.copy_from(line.slice(0, 4, 5));
  EXPECT_EQ(line.to_vector<float>(), Floats(6, 4));
  x.copy_from(x);
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST_F(Copies, BroadcastAndCastWhatTheyWrite) {
  const Tensor whole = zeros({3, 4}, BP_I32);
  whole.slice(1, 1, 4, 2).copy_from(from_host<double>({7.9, -7.9}, {2}));
  EXPECT_EQ(whole.to_vector<int32_t>(),
            (std::vector<int32_t>{0, 7, 0, -7, 0, 7, 0, -7, 0, 7, 0, -7}));
  whole.transpose().select(0, 0).fill(5);
  EXPECT_EQ(whole.select(1, 0).to_vector<int32_t>(), (std::vector<int32_t>{5, 5, 5}));
}

TEST_F(Copies, ThatAreRefusedWriteAndCountNothing) {
  const uint32_t before = x.version();
  float one = 0;
  EXPECT_THROW(x.copy_from(zeros({2, 3}, BP_F32)), Error);
  EXPECT_THROW(x.copy_from_host(&one, sizeof(one)), Error);
  EXPECT_THROW(x.to(BP_I64).fill(0.5), Error);
  EXPECT_THROW(add_out(x, x, zeros({2}, BP_F32)), Error);
  EXPECT_THROW(add_out(x, x.to(BP_F64), 1), Error);
  EXPECT_EQ(x.version(), before);
  EXPECT_EQ(x.to_vector<float>(), counted(9));
}

TEST_F(Copies, FromTheHostCountAsOneWriteAlsoThroughStrides) {
  const Floats given = counted(3);
  const uint32_t before = x.version();
  x.select(1, 2).copy_from_host(given.data(), 3 * sizeof(float));
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1, 0, 3, 4, 1, 6, 7, 2}));
  EXPECT_EQ(x.version(), before + 1);
}

// ---- Dtypes and the host -----------------------------------------------------------------------

template <typename T>
void expect_same_bits(const std::vector<T>& values) {
  const Tensor there = from_host(values, {static_cast<int64_t>(values.size())});
  EXPECT_EQ(there.dtype(), dtype_of<T>());
  EXPECT_EQ(there.to_vector<T>(), values) << dtype_text(dtype_of<T>());
}

TEST_F(Copies, GoToADeviceAndBackInEveryDtype) {
  expect_same_bits<int8_t>({-128, 0, 127});
  expect_same_bits<int16_t>({-32768, 1, 32767});
  expect_same_bits<int32_t>({INT32_MIN, 1, INT32_MAX});
  expect_same_bits<int64_t>({INT64_MIN, 1, INT64_MAX});
  expect_same_bits<uint8_t>({0, 1, 255});
  expect_same_bits<uint64_t>({0, 1, UINT64_MAX});
  expect_same_bits<float>({-0.0F, 1e-45F, 3.4e38F, INFINITY});
  expect_same_bits<double>({-0.0, 5e-324, 1.7e308, -INFINITY});
}

float item_of_bits(bp_dtype dtype, uint16_t bits) {
  return from_host(&bits, {}, dtype).item<float>();
}

TEST_F(Copies, OfOneElementBecomeNumbersOfTheHost) {
  EXPECT_EQ(item_of_bits(BP_F16, 0x3C00), 1);
  EXPECT_EQ(item_of_bits(BP_F16, 0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(item_of_bits(BP_F16, 0x83FF), -std::ldexp(1023.0F, -24));
  EXPECT_EQ(item_of_bits(BP_F16, 0xFBFF), -65504);
  EXPECT_EQ(item_of_bits(BP_F16, 0x7C00), INFINITY);
  EXPECT_TRUE(std::isnan(item_of_bits(BP_F16, 0x7E00)));
  EXPECT_EQ(item_of_bits(BP_BF16, 0xBFC0), -1.5F);
  EXPECT_EQ(scalar(-3, BP_I8).item<int>(), -3);
  EXPECT_EQ(scalar(-2.9, BP_F64).item<int>(), -2);
  EXPECT_EQ(from_host<uint64_t>({UINT64_MAX}, {}).item<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(from_host<uint64_t>({UINT64_MAX}, {}).item<double>(), 0x1p64);
  EXPECT_EQ(from_host<int64_t>({INT64_MIN}, {1, 1}).item<int64_t>(), INT64_MIN);
  EXPECT_TRUE(scalar(true, BP_BOOL).item<bool>());
}

TEST_F(Copies, OfAFractionAreTrueAsABool) {
  EXPECT_TRUE(scalar(0.5, BP_F32).item<bool>());
  EXPECT_FALSE(scalar(-0.0, BP_F32).item<bool>());
}

TEST_F(Copies, OfAFloatThatNoIntegerHoldsAreRefused) {
  for (const double value : {0x1p63, -0x1.8p63, HUGE_VAL, std::nan("")}) {
    const std::string message = message_of([&] { scalar(value, BP_F64).item<int64_t>(); });
    EXPECT_NE(message.find("which no integer of 64 bits holds"), std::string::npos) << message;
  }
  EXPECT_EQ(scalar(-0x1p63, BP_F64).item<int64_t>(), INT64_MIN);
}

TEST_F(Copies, OfLargeIntegersArePrintedAsTheyAre) {
  const Tensor y = from_host<uint64_t>({UINT64_MAX, 0}, {2});
  EXPECT_EQ(to_string(y).find("[18446744073709551615,                    0]  u64 (2,)"), 0u)
      << to_string(y);
  EXPECT_EQ(to_string(scalar(INT64_MIN, BP_I64)).find("-9223372036854775808  i64 ()"), 0u);
}

TEST_F(Copies, ArePrintedWithALineForEachRowAndALinkBetweenBlocks) {
  const std::string on = std::string(" on ") + device.name();
  EXPECT_EQ(to_string(arange(8, BP_I64).reshape({2, 2, 2})),
            "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]  i64 (2, 2, 2)" + on);
  EXPECT_EQ(to_string(arange(4, BP_I64), {.line_width = 8}), "[0, 1,\n 2, 3]  i64 (4,)" + on);
  EXPECT_EQ(to_string(arange(9, BP_I64).reshape({3, 3}), {.threshold = 4, .edge_items = 1}),
            "[[0, ..., 2],\n ...,\n [6, ..., 8]]  i64 (3, 3)" + on);
  EXPECT_EQ(to_string(from_host<float>({1e-3F, 2000}, {2})).find("[1.0000e-03, 2.0000e+03]"), 0u);
}

TEST_F(Copies, ArePrintedWithPointsInALocaleWithADecimalComma) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << CommaLocale::kNone;
  EXPECT_EQ(to_string(from_host<float>({0.5F, 2}, {2})).find("[0.5000, 2.0000]"), 0u);
  EXPECT_EQ(to_string(from_host<float>({1e-3F, 2000}, {2})).find("[1.0000e-03, 2.0000e+03]"), 0u);
}

// ---- Between devices ----------------------------------------------------------------------------

class TwoDevices : public Copies {
 protected:
  Device second = second_test_device();
};

TEST_F(TwoDevices, HoldCopiesThatDoNotKnowOfEachOther) {
  const Tensor there = x.transpose().to(second);
  EXPECT_EQ(there.device(), second);
  EXPECT_EQ(there.shape(), IntList({3, 3}));
  EXPECT_TRUE(there.is_contiguous());
  EXPECT_EQ(there.to_vector<float>(), (Floats{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  x.fill(1);
  EXPECT_EQ(there.select(0, 0).to_vector<float>(), (Floats{0, 3, 6}));
  EXPECT_EQ(there.to(second).impl(), there.impl()) << "it is there";
  EXPECT_EQ((there + 1).device(), second) << "not the current device";
}

TEST_F(TwoDevices, KeepDtypeShapeAndEmptinessOnTheWay) {
  for (const Tensor& given : {zeros({0, 3}, BP_F64), scalar(3, BP_I32), ones({2}, BP_BOOL)}) {
    const Tensor back = given.to(second).to(device);
    EXPECT_EQ(back.dtype(), given.dtype());
    EXPECT_EQ(back.shape(), given.shape());
    EXPECT_EQ(back.to(BP_F64).to_vector<double>(), given.to(BP_F64).to_vector<double>());
  }
}

TEST_F(TwoDevices, TakeValuesFromEachOther) {
  const Tensor there = zeros({2, 3}, BP_I64, second);
  there.copy_from(x.select(0, 2));
  EXPECT_EQ(there.to_vector<int64_t>(), (std::vector<int64_t>{6, 7, 8, 6, 7, 8}));
}

TEST_F(TwoDevices, DoNotMeetInOneOp) {
  const Tensor there = ones({3, 3}, BP_F32, second);
  const std::string names =
      std::string("b is on ") + second.name() + ", and a on " + device.name() + "; allowed: ";
  EXPECT_EQ(message_of([&] { x + there; }), "add: " + names + "one device");
  EXPECT_EQ(message_of([&] { matmul(x, there); }), "matmul: " + names + "one device");
  const std::string output = std::string(": y is on ") + second.name() + ", and the inputs on " +
                             device.name() + "; allowed: one device";
  EXPECT_EQ(message_of([&] { add_out(there, x, 1); }), "add" + output);
  EXPECT_EQ(message_of([&] { where_out(there, x == x, x, 1); }), "where" + output);
  EXPECT_THROW(relu_out(there, x), Error);
  EXPECT_EQ(there.to_vector<float>(), Floats(9, 1));
  EXPECT_THROW(cat(std::vector{x, there}, 0), Error);
}

TEST_F(TwoDevices, SendGradientsBack) {
  x.set_requires_grad();
  const Tensor there = x.to(second);
  EXPECT_TRUE(there.requires_grad());
  sum(there * there + there.to(device).to(second)).backward();
  EXPECT_EQ(x.grad().device(), device);
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 3, 5, 7, 9, 11, 13, 15, 17}));
  const NoGradGuard no_grad;
  EXPECT_FALSE(x.to(second).requires_grad());
}

}  // namespace
}  // namespace bp
