#include "ops_spec/dims.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bp::dims {
namespace {

// Returns a list as a vector, or {kNone} for a list that does not exist.
std::vector<int64_t> values(View view) {
  return view.exists() ? std::vector<int64_t>(view.begin(), view.end())
                       : std::vector<int64_t>{kNone};
}

using List = std::vector<int64_t>;
const List kNothing = {kNone};

TEST(Dims, SlicesAsPythonDoes) {
  const Dims x{2, 3, 4};
  EXPECT_EQ(values(slice(x, 1, kEnd)), (List{3, 4}));
  EXPECT_EQ(values(slice(x, 0, -1)), (List{2, 3}));
  EXPECT_EQ(values(slice(x, -2, kEnd)), (List{3, 4}));
  EXPECT_EQ(values(slice(x, 2, 1)), List{});
  EXPECT_EQ(values(slice(x, -9, 9)), (List{2, 3, 4}));
  EXPECT_EQ(at(x, -1), 4);
  EXPECT_EQ(at(x, 3), kNone);
  EXPECT_EQ(at(x, -4), kNone);
}

TEST(Dims, DividesTowardMinusInfinity) {
  EXPECT_EQ(floor_div(7, 2), 3);
  EXPECT_EQ(floor_div(-7, 2), -4);
  EXPECT_EQ(floor_div(7, -2), -4);
  EXPECT_EQ(floor_div(7, 0), kNone);
  EXPECT_EQ(mod(-7, 3), 2);
  EXPECT_EQ(mod(7, -3), -2);
  EXPECT_EQ(mod(INT64_MAX, -1), 0);
  EXPECT_EQ(mod(7, 0), kNone);
}

TEST(Dims, CarriesWhatDoesNotExistToTheEnd) {
  EXPECT_EQ(add(INT64_MAX, 1), kNone);
  EXPECT_EQ(sub(INT64_MIN + 1, 2), kNone);
  EXPECT_EQ(mul(INT64_MAX, 2), kNone);
  EXPECT_EQ(add(mul(INT64_MAX, 2), 5), kNone);
  EXPECT_EQ(max(kNone, 5), kNone);
  EXPECT_EQ(min(kNone, 5), kNone);
  EXPECT_EQ(values(Dims{1, kNone}), kNothing);
  EXPECT_EQ(values(concat(Dims{1}, Dims{kNone})), kNothing);
  EXPECT_EQ(values(slice(Dims{kNone}, 0, 1)), kNothing);
  EXPECT_EQ(values(repeat(Dims{1}, 17)), kNothing);
  EXPECT_EQ(numel(Dims{INT64_MAX, 2}), kNone);
  EXPECT_FALSE(View(Dims{kNone}) == View(Dims{kNone}));
}

TEST(Dims, CountsElements) {
  EXPECT_EQ(numel(Dims{}), 1);
  EXPECT_EQ(numel(Dims{2, 3}), 6);
  EXPECT_EQ(numel(Dims{INT64_MAX, 0, INT64_MAX}), 0);
}

TEST(Dims, BroadcastsFromTheLastAxis) {
  EXPECT_EQ(values(broadcast(Dims{4, 1, 3}, Dims{2, 1})), (List{4, 2, 3}));
  EXPECT_EQ(values(broadcast(Dims{}, Dims{5})), List{5});
  EXPECT_EQ(values(broadcast(Dims{1}, Dims{0})), List{0});
  EXPECT_EQ(values(broadcast(Dims{2}, Dims{3})), kNothing);
}

TEST(Dims, ReducesAxes) {
  EXPECT_EQ(values(reduced(Dims{2, 3, 4}, Dims{2, 0}, 0)), List{3});
  EXPECT_EQ(values(reduced(Dims{2, 3, 4}, Dims{2, 0}, 1)), (List{1, 3, 1}));
  EXPECT_EQ(values(reduced(Dims{2, 3}, Dims{}, 0)), (List{2, 3}));
}

TEST(Dims, FitsWindows) {
  EXPECT_EQ(values(window(Dims{8, 9}, Dims{3, 3}, Dims{2, 1}, Dims{1, 0, 1, 0}, Dims{1, 2})),
            (List{4, 5}));
  EXPECT_EQ(values(window(Dims{3}, Dims{3}, Dims{1}, Dims{0, 0}, Dims{1})), List{1});
  EXPECT_EQ(values(window(Dims{2}, Dims{3}, Dims{1}, Dims{0, 0}, Dims{1})), kNothing);
  EXPECT_EQ(values(window(Dims{2}, Dims{3}, Dims{1}, Dims{0, 1}, Dims{1})), List{1});
  EXPECT_EQ(values(window(Dims{5}, Dims{0}, Dims{1}, Dims{0, 0}, Dims{1})), kNothing);
  EXPECT_EQ(values(window(Dims{5}, Dims{1}, Dims{0}, Dims{0, 0}, Dims{1})), kNothing);
  EXPECT_EQ(values(window(Dims{5}, Dims{2}, Dims{1}, Dims{0, 0}, Dims{INT64_MAX})), kNothing);
  EXPECT_EQ(values(window(Dims{5, 5}, Dims{1}, Dims{1}, Dims{0, 0}, Dims{1})), kNothing);
}

TEST(Dims, FindsWhatWindowsCover) {
  const auto covered_by = [](const Dims& count, const Dims& padding, const Dims& extra) {
    return values(covered(count, Dims{3, 3}, Dims{2, 1}, padding, Dims{1, 2}, extra));
  };
  EXPECT_EQ(covered_by(Dims{4, 5}, Dims{1, 0, 1, 0}, Dims{1, 0}), (List{8, 9}));
  EXPECT_EQ(covered_by(Dims{1, 1}, Dims{2, 0, 1, 5}, Dims{0, 0}), (List{0, 0}));
  EXPECT_EQ(covered_by(Dims{1, 1}, Dims{2, 0, 2, 0}, Dims{0, 0}), kNothing);
  EXPECT_EQ(covered_by(Dims{0, 1}, Dims{0, 0, 0, 0}, Dims{9, 0}), kNothing);
  EXPECT_EQ(covered_by(Dims{INT64_MAX, 1}, Dims{0, 0, 0, 0}, Dims{0, 0}), kNothing);
  EXPECT_EQ(covered_by(Dims{4, 5}, Dims{0, 0, 0, 0}, Dims{1}), kNothing);
}

TEST(Dims, CountsTheElementsOfABand) {
  for (const int64_t rows : {0, 1, 3, 5}) {
    for (const int64_t columns : {0, 1, 4, 5}) {
      for (int64_t begin = -7; begin <= 7; ++begin) {
        for (int64_t end = -7; end <= 7; ++end) {
          int64_t count = 0;
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) count += i + begin <= j && j < i + end ? 1 : 0;
          }
          EXPECT_EQ(band(rows, columns, begin, end), count)
              << rows << " by " << columns << ", from " << begin << " to " << end;
        }
      }
    }
  }
  EXPECT_EQ(band(2, 3, -INT64_MAX, INT64_MAX), 6);
  EXPECT_EQ(band(2, 3, kNone, 1), kNone);
  EXPECT_EQ(band(INT64_MAX / 4, INT64_MAX / 4, -1, INT64_MAX), kNone);
}

TEST(Dims, ConcatenatesShapes) {
  const int64_t a[] = {2, 3}, b[] = {2, 5}, c[] = {3, 5};
  bp_tensor first{}, second{}, third{};
  first.shape = a;
  second.shape = b;
  third.shape = c;
  first.ndim = second.ndim = third.ndim = 2;
  const bp_tensor* const two[] = {&first, &second};
  EXPECT_TRUE(View(concatenated(two, 1)) == View(Dims{2, 8}));
  EXPECT_EQ(concatenated(two, 0).count, kNone);
  EXPECT_EQ(concatenated(two, 2).count, kNone);
  const bp_tensor* const other[] = {&first, &third};
  EXPECT_EQ(concatenated(other, 1).count, kNone);
  EXPECT_EQ(concatenated({}, 0).count, kNone);
}

TEST(Dims, ChoosesDtypes) {
  EXPECT_EQ(accumulator(BP_BF16), bp_dtype{BP_F32});
  EXPECT_EQ(accumulator(BP_F64), bp_dtype{BP_F64});
  EXPECT_EQ(sum_dtype(BP_BOOL), bp_dtype{BP_I64});
  EXPECT_EQ(sum_dtype(BP_I32), bp_dtype{BP_I64});
  EXPECT_EQ(sum_dtype(BP_F16), bp_dtype{BP_F16});
}

}  // namespace
}  // namespace bp::dims
