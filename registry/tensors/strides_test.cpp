#include "registry/tensors/strides.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

namespace bp::tensors {
namespace {

using Numbers = std::vector<int64_t>;

struct Strided {
  Numbers shape, strides;

  bp_tensor tensor() const {
    return {.shape = shape.data(),
            .strides = strides.data(),
            .ndim = static_cast<uint32_t>(shape.size())};
  }
};

bool is_contiguous(const Numbers& shape, const Numbers& strides) {
  return tensors::is_contiguous(Strided{shape, strides}.tensor());
}

TEST(Strides, AreContiguousInRowMajorOrderWithoutGaps) {
  EXPECT_TRUE(is_contiguous({}, {}));
  EXPECT_TRUE(is_contiguous({3, 4}, {4, 1}));
  EXPECT_FALSE(is_contiguous({3, 4}, {5, 1}));
  EXPECT_FALSE(is_contiguous({3, 4}, {1, 3}));
  EXPECT_FALSE(is_contiguous({3, 4}, {4, -1}));
  EXPECT_TRUE(is_contiguous({3, 1, 4}, {4, 77, 1})) << "a stride of an extent of 1 is free";
  EXPECT_TRUE(is_contiguous({0, 4}, {9, 9})) << "without elements every stride is";
  EXPECT_TRUE(is_contiguous({4, 0}, {9, 9}));
}

TEST(Strides, OfAsManyElementsAs64BitsHoldAreCompared) {
  constexpr int64_t kLarge = int64_t{1} << 60;
  int64_t count = 0;
  const Strided large{{kLarge, 4}, {4, 1}};
  EXPECT_TRUE(has_contiguous_strides(large.tensor(), &count));
  EXPECT_EQ(count, 4 * kLarge);
  EXPECT_FALSE(is_contiguous({2, kLarge, 4}, {4, 4, 1}));
}

TEST(Strides, ThatAreSetAreContiguousAndNeverZero) {
  for (const Numbers& shape : {Numbers{}, Numbers{5}, Numbers{2, 3, 4}, Numbers{2, 1, 4}}) {
    Numbers strides(shape.size());
    set_contiguous_strides(static_cast<uint32_t>(shape.size()), shape.data(), strides.data());
    EXPECT_TRUE(is_contiguous(shape, strides));
  }
  const Numbers empty = {2, 0, 4};
  Numbers strides(3);
  set_contiguous_strides(3, empty.data(), strides.data());
  EXPECT_EQ(strides, (Numbers{4, 4, 1}));
}

// Finds each element, as tensor.h defines a tensor.
std::set<int64_t> offsets_of(const Strided& s) {
  std::set<int64_t> offsets;
  const int64_t count = element_count(s.tensor());
  for (int64_t n = 0; n < count; ++n) {
    int64_t offset = 0, rest = n;
    for (size_t axis = 0; axis < s.shape.size(); ++axis) {
      offset += rest % s.shape[axis] * s.strides[axis];
      rest /= s.shape[axis];
    }
    offsets.insert(offset);
  }
  return offsets;
}

TEST(Strides, ReachFromTheLowestToTheHighestElement) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 engine(kSeed);
  std::uniform_int_distribution<int64_t> rank(0, 4), extent(0, 4), stride(-6, 6);
  int empty_count = 0;
  for (int round = 0; round < 500; ++round) {
    Strided s{Numbers(static_cast<size_t>(rank(engine))), {}};
    for (int64_t& each : s.shape) each = extent(engine);
    for (size_t axis = 0; axis < s.shape.size(); ++axis) s.strides.push_back(stride(engine));
    const std::set<int64_t> offsets = offsets_of(s);
    const Reach reach = reach_of(s.tensor());
    EXPECT_EQ(has_elements(s.tensor()), !offsets.empty());
    empty_count += offsets.empty() ? 1 : 0;
    if (offsets.empty()) {
      EXPECT_EQ(static_cast<int64_t>(reach.span()), 0);
      continue;
    }
    EXPECT_EQ(static_cast<int64_t>(reach.lowest), *offsets.begin()) << "round " << round;
    EXPECT_EQ(static_cast<int64_t>(reach.highest), *offsets.rbegin()) << "round " << round;
  }
  EXPECT_GT(empty_count, 20);
  EXPECT_LT(empty_count, 480);
}

TEST(Strides, ThatLeadBeyond64BitsReachBeyondEveryMemory) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Numbers shape(BP_MAX_RANK, kMost);
  const Strided up{shape, Numbers(BP_MAX_RANK, kMost)}, down{shape, Numbers(BP_MAX_RANK, kLeast)};
  EXPECT_TRUE(reach_of(up.tensor()).highest * 16 > UINT64_MAX);
  EXPECT_TRUE(reach_of(up.tensor()).lowest == 0);
  EXPECT_TRUE(reach_of(down.tensor()).lowest * 16 < -Wide{UINT64_MAX});
  EXPECT_TRUE(reach_of(down.tensor()).highest == 0);
}

}  // namespace
}  // namespace bp::tensors
