#include "runtime/distributed/box.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/distributed/checksum.hpp"

namespace bp::distributed {
namespace {

using Shape = std::vector<int64_t>;

int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Returns the places of the elements of a box in the whole tensor, row by row.
std::vector<int64_t> places_of(const Shape& shape, const Box& box) {
  const Box whole{Shape(shape.size(), 0), shape};
  std::vector<int64_t> places(static_cast<size_t>(box.count()), -1);
  for_each_run(whole, box, box, [&](int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) places[static_cast<size_t>(to + i)] = from + i;
  });
  return places;
}

TEST(Box, CutsEveryRangeIntoBoxesThatFollowEachOther) {
  for (const Shape& shape :
       {Shape{}, Shape{5}, Shape{1, 1}, Shape{3, 4}, Shape{4, 1, 3}, Shape{2, 3, 4}}) {
    for (int64_t begin = 0; begin <= count_of(shape); ++begin) {
      for (int64_t end = begin; end <= count_of(shape); ++end) {
        std::vector<int64_t> want(static_cast<size_t>(end - begin)), got;
        std::iota(want.begin(), want.end(), begin);
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        for (const Box& box : boxes) {
          ASSERT_TRUE(is_within(box, shape)) << text_of(box);
          const std::vector<int64_t> places = places_of(shape, box);
          got.insert(got.end(), places.begin(), places.end());
        }
        ASSERT_EQ(got, want) << begin << " to " << end;
        ASSERT_LE(boxes.size(), std::max<size_t>(1, 2 * shape.size() - 1));
      }
    }
  }
}

TEST(Box, CopiesRunsBetweenBoxesThatOverlap) {
  const Shape shape{4, 5, 3};
  const Box from{{1, 0, 0}, {3, 4, 3}}, to{{0, 2, 1}, {3, 3, 2}};
  const auto part = overlap_of(from, to);
  ASSERT_TRUE(part);
  EXPECT_EQ(text_of(*part), "[1:3, 2:4, 1:3]");
  const std::vector<int64_t> in_from = places_of(shape, from), in_to = places_of(shape, to);
  int64_t copied = 0, last = -1;
  for_each_run(from, to, *part, [&](int64_t a, int64_t b, int64_t count) {
    EXPECT_GT(a, last);
    last = a;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(in_from[static_cast<size_t>(a + i)], in_to[static_cast<size_t>(b + i)]);
    }
    copied += count;
  });
  EXPECT_EQ(copied, part->count());
  EXPECT_FALSE(overlap_of({{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}));
}

TEST(Box, FindsGapsAndOverlaps) {
  EXPECT_EQ(tiling_problem({4, 6}, {{{0, 0}, {4, 3}}, {{2, 3}, {2, 3}}, {{0, 3}, {2, 3}}}), "");
  EXPECT_EQ(tiling_problem({}, {{{}, {}}}), "");
  EXPECT_EQ(tiling_problem({0, 3}, {}), "");
  EXPECT_EQ(tiling_problem({4, 6}, {{{0, 0}, {4, 3}}, {{2, 3}, {2, 3}}}),
            "the pieces have 18 of its 24 elements");
  EXPECT_EQ(tiling_problem({4}, {{{0}, {2}}, {{1}, {2}}}), "the pieces [0:2] and [1:3] overlap");
  EXPECT_EQ(tiling_problem({}, {{{}, {}}, {{}, {}}}), "the pieces [] and [] overlap");
  EXPECT_EQ(tiling_problem({2, 2}, {{{0, 0}, {2, 1}}, {{1, 0}, {1, 2}}}),
            "the pieces [0:2, 0:1] and [1:2, 0:2] overlap");
}

TEST(Box, KnowsWhatIsWithinAShape) {
  EXPECT_TRUE(is_within({{1, 2}, {3, 4}}, {4, 6}));
  EXPECT_FALSE(is_within({{1, 3}, {3, 4}}, {4, 6}));
  EXPECT_FALSE(is_within({{-1, 0}, {1, 1}}, {4, 6}));
  EXPECT_FALSE(is_within({{0}, {1}}, {4, 6}));
  EXPECT_FALSE(is_within({{INT64_MAX, 0}, {INT64_MAX, 1}}, {4, 6}));
}

// The values of RFC 3720, appendix B.4, and the usual check value.
TEST(Checksum, IsThatOfTheStandard) {
  const std::string zeros(32, '\0'), ones(32, '\xff');
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  for (const auto& sum : {crc32c, crc32c_by_tables}) {
    EXPECT_EQ(sum(zeros.data(), 32), 0x8A9136AAu);
    EXPECT_EQ(sum(ones.data(), 32), 0x62A8AB43u);
    EXPECT_EQ(sum(rising.data(), 32), 0x46DD794Eu);
    EXPECT_EQ(sum("123456789", 9), 0xE3069283u);
    EXPECT_EQ(sum("", 0), 0u);
  }
  for (size_t size = 0; size <= 32; ++size) {
    EXPECT_EQ(crc32c(rising.data() + 1, size % 32), crc32c_by_tables(rising.data() + 1, size % 32));
  }
}

}  // namespace
}  // namespace bp::distributed
