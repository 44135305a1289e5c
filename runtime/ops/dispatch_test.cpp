// Tests what all ops share: broadcasting, numbers in the place of tensors, refusals, given outputs,
// and calls from many threads.
#include "runtime/ops/dispatch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/random.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;
using Numbers = std::vector<int64_t>;
using Shape = std::vector<int64_t>;

class Dispatch : public testing::Test {
 protected:
  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = from_host<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device);
};

// ---- Broadcasting ------------------------------------------------------------------------------

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Returns an extent of the shape after it is padded with 1 in front to 4 axes.
int64_t extent_at(const Shape& shape, size_t axis) {
  const size_t lead = 4 - shape.size();
  return axis < lead ? 1 : shape[axis - lead];
}

// Returns the element of 0, 1, 2, ... in `shape` that broadcasting shows at `index` of 4 axes.
int64_t broadcast_element(const Shape& shape, const int64_t (&index)[4]) {
  int64_t place = 0;
  for (size_t axis = 0; axis < 4; ++axis) {
    const int64_t extent = extent_at(shape, axis);
    place = place * extent + (extent == 1 ? 0 : index[axis]);
  }
  return place;
}

// Computes 1000 a + b element by element.
Numbers combined(const Shape& a, const Shape& b, const Shape& y) {
  Numbers result;
  int64_t index[4];
  for (int64_t i = 0; i < count_of(y); ++i) {
    int64_t rest = i;
    for (size_t axis = 4; axis-- > 0;) {
      index[axis] = rest % extent_at(y, axis);
      rest /= extent_at(y, axis);
    }
    result.push_back(1000 * broadcast_element(a, index) + broadcast_element(b, index));
  }
  return result;
}

TEST_F(Dispatch, BroadcastsAsElementByElement) {
  const struct {
    Shape a, b, y;
  } rows[] = {
      {{}, {}, {}},
      {{}, {3}, {3}},
      {{2, 3}, {3}, {2, 3}},
      {{2, 1}, {3}, {2, 3}},
      {{1, 3}, {2, 1}, {2, 3}},
      {{2, 1, 4}, {3, 1}, {2, 3, 4}},
      {{1, 1, 1, 1}, {2, 3}, {1, 1, 2, 3}},
      {{5, 1, 3, 1}, {2, 1, 4}, {5, 2, 3, 4}},
      {{0}, {1}, {0}},
      {{1}, {2, 0}, {2, 0}},
      {{0, 1}, {3}, {0, 3}},
  };
  const auto numbered = [](const Shape& shape) {
    return arange(count_of(shape), BP_I64).reshape(shape);
  };
  for (const auto& [a, b, y] : rows) {
    SCOPED_TRACE(to_string(IntList(a)) + " with " + to_string(IntList(b)));
    const Tensor forth = numbered(a) * 1000 + numbered(b);
    EXPECT_EQ(forth.shape(), IntList(y));
    EXPECT_EQ(forth.to_vector<int64_t>(), combined(a, b, y));
    const Tensor back = numbered(b) * 1000 + numbered(a);
    EXPECT_EQ(back.shape(), IntList(y));
    EXPECT_EQ(back.to_vector<int64_t>(), combined(b, a, y));
  }
}

TEST_F(Dispatch, RefusesExtentsThatDoNotMeet) {
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{2, 3}, {2}},
                             {{0}, {2}},
                             {{4, 3, 1}, {2, 3, 3}},
                             {{1, 2}, {3, 1, 3}}}) {
    const std::string message =
        message_of([&, &l = a, &r = b] { ones(l, BP_F32) + ones(r, BP_F32); });
    EXPECT_EQ(message, "add: a has the shape " + to_string(IntList(a)) + " and b " +
                           to_string(IntList(b)) +
                           "; allowed: shapes whose extents, from the last one, are equal or 1");
  }
}

TEST_F(Dispatch, BroadcastsThreeInputsToEachOther) {
  const Tensor condition = from_host<int64_t>({0, 1}, {2, 1, 1}) == 1;
  const Tensor column = from_host<float>({10, 20}, {2, 1});
  const Tensor y = where(condition, column, from_host<float>({1, 2, 3}, {3}));
  EXPECT_EQ(y.shape(), IntList({2, 2, 3}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 2, 3, 1, 2, 3, 10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(lerp(x, ones({3}, BP_F32), 1).to_vector<float>(), Floats(6, 1));
  const std::string message = message_of([&] { where(x == x, x, ones({2}, BP_F32)); });
  EXPECT_EQ(message.find("where: b has the shape (2,), and condition and a (2, 3); allowed: "), 0u)
      << message;
}

// ---- Numbers -----------------------------------------------------------------------------------

TEST_F(Dispatch, TakesANumberOnEitherSide) {
  EXPECT_EQ(sub(10, x).to_vector<float>(), (Floats{10, 9, 8, 7, 6, 5}));
  EXPECT_EQ(sub(x, 10).to_vector<float>(), (Floats{-10, -9, -8, -7, -6, -5}));
  EXPECT_EQ(lt(2, x).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(lt(x, 2).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(maximum(2.5, x).to_vector<float>(), (Floats{2.5, 2.5, 2.5, 3, 4, 5}));
  const Tensor none = zeros({0}, BP_F32);
  EXPECT_EQ((1 / none).shape(), IntList({0}));
}

TEST_F(Dispatch, KeepsEveryBitOfAWholeNumber) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // No double is equal to it.
  const Tensor zero = zeros({1}, BP_I64);
  EXPECT_EQ((zero + kOdd).item<int64_t>(), kOdd);
  EXPECT_EQ((kOdd - zero).item<int64_t>(), kOdd);
  EXPECT_EQ(full({1}, kOdd, BP_I64).item<int64_t>(), kOdd);
  EXPECT_EQ((zero == kOdd).item<int>(), 0);
  EXPECT_EQ((full({1}, kOdd, BP_I64) == kOdd - 1).item<int>(), 0);
}

TEST_F(Dispatch, DividesIntegersAsFloats) {
  const Tensor whole = from_host<int32_t>({7, -7, 0}, {3});
  EXPECT_EQ((whole / 2).to_vector<float>(), (Floats{3.5, -3.5, 0}));
  EXPECT_EQ((whole / whole.slice(0, 0, 1)).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ((7 / whole.slice(0, 0, 2)).to_vector<float>(), (Floats{1, -1}));
  EXPECT_TRUE(std::isnan((whole / 0).to_vector<float>()[2]));
  EXPECT_EQ((x.to(BP_F64) / 2).dtype(), bp_dtype{BP_F64});
}

// ---- Refusals ----------------------------------------------------------------------------------

TEST_F(Dispatch, NamesTheInputThatIsEmpty) {
  const Tensor none;
  EXPECT_EQ(message_of([&] { add(x, none); }), "add: b is empty; allowed: a tensor");
  EXPECT_EQ(message_of([&] { add(none, x); }), "add: a is empty; allowed: a tensor");
  EXPECT_EQ(message_of([&] { add(none, 1); }), "add: a is empty; allowed: a tensor");
  EXPECT_EQ(message_of([&] { where(x == x, none, 1); }), "where: a is empty; allowed: a tensor");
  EXPECT_EQ(message_of([&] { matmul(x, none); }), "matmul: b is empty; allowed: a tensor");
  EXPECT_EQ(message_of([&] {
              cat(std::vector{x, none}, 0);
            }),
            "cat: xs is empty; allowed: a tensor");
  EXPECT_EQ(message_of([] { cat(std::vector<Tensor>(), 0); }),
            "cat: xs has no tensors; allowed: at least one");
}

TEST_F(Dispatch, NamesTheAxesThatAreWrong) {
  EXPECT_EQ(message_of([&] { sum(x, {0, 2}); }), "sum: axes is 2; allowed: -2 <= axes < 2");
  EXPECT_NE(message_of([&] {
              sum(x, {1, -1});
            }).find("sum: axes"),
            std::string::npos)
      << "an axis twice";
  EXPECT_EQ(message_of([&] { softmax(scalar(1, BP_F32), 1); }),
            "softmax: axis is 1; allowed: -1 <= axis < 1");
  EXPECT_EQ(message_of([&] { cat(std::vector<Tensor>{scalar(1, BP_F32)}, 0); }),
            "cat: axis is 0; allowed: none, the tensor has no axes");
  const Shape many(17, 0);
  EXPECT_EQ(message_of([&] { sum(x, many); }), "sum: axes has 17 numbers; allowed: up to 16");
}

TEST_F(Dispatch, TakesAllAxesOnlyWhereNoneAreGiven) {
  EXPECT_EQ(sum(x, IntList()).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(sum(x, {1, 0}).item<float>(), 15);
  EXPECT_EQ(sum(scalar(3, BP_F32)).item<float>(), 3);
  EXPECT_EQ(sum(zeros({0, 2}, BP_F32), {0}).to_vector<float>(), (Floats{0, 0}));
}

TEST_F(Dispatch, RefusesAGivenOutputOfAnotherKindAndLeavesItAlone) {
  const Tensor y = zeros({2, 3}, BP_F64);
  const std::string message = message_of([&] { add_out(y, x, 1); });
  EXPECT_EQ(message.find("add: y "), 0u) << message;
  EXPECT_NE(message.find("f64"), std::string::npos) << message;
  EXPECT_EQ(message_of([&] { add_out(Tensor(), x, 1); }), "add: y is empty; allowed: a tensor");
  EXPECT_THROW(sum_out(y, x), Error);
  EXPECT_EQ(y.version(), zeros({1}, BP_F32).version());
  EXPECT_EQ(y.to_vector<double>(), std::vector<double>(6));
}

TEST_F(Dispatch, WritesThroughTheStridesOfAGivenOutput) {
  const Tensor whole = zeros({3, 4}, BP_F32);
  add_out(whole.slice(1, 0, 4, 2).transpose(), x, x);
  EXPECT_EQ(whole.to_vector<float>(), (Floats{0, 0, 6, 0, 2, 0, 8, 0, 4, 0, 10, 0}));
}

// ---- Random numbers ----------------------------------------------------------------------------

TEST_F(Dispatch, DropsNothingAndEverythingAtTheEnds) {
  Generator generator(1);
  EXPECT_EQ(dropout(x, 0, &generator).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(dropout(x, 1, &generator).to_vector<float>(), Floats(6, 0));
  EXPECT_NE(message_of([&] { dropout(x, 1.5, &generator); }).find("dropout: p is 1.5"),
            std::string::npos);
  EXPECT_THROW(dropout(x, std::nan(""), &generator), Error);
}

TEST_F(Dispatch, DrawsNumbersThatAreSpreadOverTheirInterval) {
  Generator generator(9);
  const Tensor y = uniform({40, 100}, BP_F64, device, &generator);
  EXPECT_LE(amax(-y).item<double>(), 0);
  EXPECT_LT(amax(y).item<double>(), 1);
  EXPECT_NEAR(mean(y).item<double>(), 0.5, 0.02);
  EXPECT_NEAR(mean(y * y).item<double>(), 1.0 / 3, 0.02);
  EXPECT_EQ(generator.state().offset, 2000u);
  EXPECT_EQ(message_of([&] { uniform({-2}, BP_F32); }),
            "the shape (-2,) has an extent below 0; allowed: 0 and above");
  EXPECT_EQ(uniform({0, 5}, BP_F32, device, &generator).numel(), 0);
  EXPECT_EQ(generator.state().offset, 2000u) << "no elements take no numbers";
}

// ---- Threads -----------------------------------------------------------------------------------

TEST_F(Dispatch, GivesEachThreadItsOwnResultsAndItsOwnWords) {
  constexpr int kThreads = 4;
  std::vector<Floats> results(kThreads);
  std::vector<std::string> words(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const DeviceGuard here(device);
      const auto own = static_cast<size_t>(i);
      const int64_t axis = 10 + i;
      for (int n = 0; n < 50; ++n) {
        words[own] = message_of([&] { softmax(x, axis); });
        results[own] = (sum(x * i, {0}) + x.select(0, 1)).to_vector<float>();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    const auto own = static_cast<size_t>(i);
    const auto n = static_cast<float>(i);
    EXPECT_EQ(results[own], (Floats{3 * n + 3, 5 * n + 4, 7 * n + 5}));
    EXPECT_EQ(words[own],
              "softmax: axis is " + std::to_string(10 + i) + "; allowed: -2 <= axis < 2");
  }
}

}  // namespace
}  // namespace bp
