// The boxes of flip, roll, pad and tile: each place of y gets its element once.
#include "backplane/shell/moves.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

// A row-major tensor of any memory.
struct Dense {
  explicit Dense(std::vector<int64_t> extents)
      : shape(std::move(extents)), strides(row_major_strides(shape)) {
    tensor.ndim = static_cast<uint32_t>(shape.size());
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
  Dense(const Dense&) = delete;

  std::vector<int64_t> shape, strides;
  bp_tensor tensor{};
};

// Calls fn(to, from) for each element of a box.
template <typename Fn>
void walk(const Move& move, uint32_t axis, int64_t to, int64_t from, const Fn& fn) {
  if (axis == move.ndim) return fn(to, from);
  for (int64_t i = 0; i < move.shape[axis]; ++i) {
    walk(move, axis + 1, to + i * move.to_strides[axis], from + i * move.from_strides[axis], fn);
  }
}

// Runs the boxes where element i of x is the letter 'a' + i, and the value is '-'.
std::string run(const std::vector<Move>& moves, const Dense& y) {
  std::string text(static_cast<size_t>(element_count(y.tensor)), '?');
  for (const Move& move : moves) {
    walk(move, 0, move.to_offset, move.from_offset, [&](int64_t to, int64_t from) {
      char& place = text.at(static_cast<size_t>(to));
      EXPECT_EQ(place, '?') << "place " << to << " is written twice";
      place = move.is_value ? '-' : static_cast<char>('a' + from);
    });
  }
  return text;
}

TEST(Moves, FlipGivesAnAxisInTheOppositeOrder) {
  const Dense x({2, 3});
  bp_flip_args args{.x = &x.tensor, .y = &x.tensor, .axis = 0};
  EXPECT_EQ(run(moves_of(args), x), "defabc");
  args.axis = 1;
  EXPECT_EQ(run(moves_of(args), x), "cbafed");
}

TEST(Moves, RollTakesAnyShift) {
  const Dense x({5});
  const auto roll = [&](int64_t shift) {
    return run(moves_of({.x = &x.tensor, .y = &x.tensor, .shift = shift, .axis = 0}), x);
  };
  EXPECT_EQ(roll(2), "deabc");
  EXPECT_EQ(roll(-1), "bcdea");
  EXPECT_EQ(roll(5), "abcde");
  EXPECT_EQ(roll(-(int64_t{1} << 62)), roll(-4)) << "2^62 is 4 modulo 5";
}

TEST(Moves, PadInEachMode) {
  const Dense x({4}), y({9});
  bp_pad_args args{.x = &x.tensor, .y = &y.tensor, .axis = 0, .before = 3, .after = 2};
  args.mode = BP_PAD_MODE_CONSTANT;
  EXPECT_EQ(run(moves_of(args), y), "---abcd--");
  args.mode = BP_PAD_MODE_REFLECT;
  EXPECT_EQ(run(moves_of(args), y), "dcbabcdcb");
  args.mode = BP_PAD_MODE_REPLICATE;
  EXPECT_EQ(run(moves_of(args), y), "aaaabcddd");
}

TEST(Moves, TileRepeatsAnAxis) {
  const Dense x({2, 2}), along({2, 6}), over({6, 2});
  EXPECT_EQ(run(moves_of({.x = &x.tensor, .y = &along.tensor, .count = 3, .axis = 1}), along),
            "abababcdcdcd");
  EXPECT_EQ(run(moves_of({.x = &x.tensor, .y = &over.tensor, .count = 3, .axis = 0}), over),
            "abcdabcdabcd");
}

// The ninth axis, which counts the repetitions, is split into boxes.
TEST(Moves, TileATensorOfTheHighestRank) {
  const Dense x({2, 2, 2, 2, 2, 2, 2, 2}), y({2, 2, 2, 2, 2, 2, 2, 6});
  const std::vector<Move> moves = moves_of({.x = &x.tensor, .y = &y.tensor, .count = 3, .axis = 7});
  ASSERT_EQ(moves.size(), 2u);
  const std::string text = run(moves, y);
  for (size_t i = 0; i < text.size(); ++i) {
    ASSERT_EQ(text[i], static_cast<char>('a' + i / 6 * 2 + i % 2)) << "element " << i;
  }
}

TEST(Moves, LeaveBoxesWithoutElementsAway) {
  const Dense x({0, 3}), y({0, 3});
  EXPECT_TRUE(moves_of(bp_flip_args{.x = &x.tensor, .y = &y.tensor, .axis = 1}).empty());
  const Dense row({3});
  EXPECT_EQ(moves_of(bp_roll_args{.x = &row.tensor, .y = &row.tensor, .axis = 0}).size(), 1u);
}

}  // namespace
}  // namespace bp
