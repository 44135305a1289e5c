#include "ops_spec/overlap.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <vector>

namespace bp {
namespace {

bp_buffer* const kBuffer = reinterpret_cast<bp_buffer*>(0x1000);

// A tensor of f32 with the arrays that it points to.
struct Strided {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  uint64_t offset = 0;  // In elements.
  bp_buffer* buffer = kBuffer;

  [[nodiscard]] bp_tensor get() const {
    return {.buffer = buffer,
            .byte_offset = offset * 4,
            .shape = shape.data(),
            .strides = strides.data(),
            .ndim = static_cast<uint32_t>(shape.size()),
            .dtype = BP_F32,
            .layout = nullptr,
            .flags = 0,
            .reserved = 0};
  }

  // Returns the positions of all elements, one by one.
  [[nodiscard]] std::vector<int64_t> positions() const {
    std::vector<int64_t> all = {static_cast<int64_t>(offset)};
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      std::vector<int64_t> next;
      for (const int64_t position : all) {
        for (int64_t i = 0; i < shape[axis]; ++i) next.push_back(position + i * strides[axis]);
      }
      all = next;
    }
    return all;
  }
};

TEST(Overlap, KnowsWhenATensorHasElementsInOnePlace) {
  EXPECT_FALSE(overlaps_itself(Strided{{2, 3}, {3, 1}}.get()));
  EXPECT_FALSE(overlaps_itself(Strided{{2, 3}, {1, 2}}.get()));
  EXPECT_FALSE(overlaps_itself(Strided{{3}, {-2}, 8}.get()));
  EXPECT_FALSE(overlaps_itself(Strided{{1, 3}, {0, 1}}.get()));
  EXPECT_FALSE(overlaps_itself(Strided{{0, 3}, {0, 0}}.get()));
  EXPECT_TRUE(overlaps_itself(Strided{{2, 3}, {0, 1}}.get()));
  EXPECT_TRUE(overlaps_itself(Strided{{2, 3}, {2, 1}}.get()));
}

TEST(Overlap, TellsSlicesBesideEachOtherApart) {
  const Strided left{{4, 2}, {6, 1}, 0};
  const Strided right{{4, 4}, {6, 1}, 2};
  EXPECT_FALSE(overlap(left.get(), right.get()));
  const Strided even{{5}, {2}, 0};
  const Strided odd{{5}, {2}, 1};
  EXPECT_FALSE(overlap(even.get(), odd.get()));
  EXPECT_TRUE(overlap(left.get(), Strided{{4, 4}, {6, 1}, 1}.get()));
}

TEST(Overlap, NeedsOneBufferAndElements) {
  const Strided whole{{4}, {1}};
  Strided elsewhere = whole;
  elsewhere.buffer = reinterpret_cast<bp_buffer*>(0x2000);
  EXPECT_TRUE(overlap(whole.get(), whole.get()));
  EXPECT_FALSE(overlap(whole.get(), elsewhere.get()));
  EXPECT_FALSE(overlap(whole.get(), Strided{{0}, {1}}.get()));
}

TEST(Overlap, TakesSameMemoryForWhatItIs) {
  const Strided a{{2, 3}, {3, 1}, 5};
  EXPECT_TRUE(is_same_memory(a.get(), a.get()));
  EXPECT_TRUE(is_same_memory(Strided{{1, 3}, {7, 1}}.get(), Strided{{1, 3}, {0, 1}}.get()));
  EXPECT_FALSE(is_same_memory(a.get(), Strided{{3, 2}, {1, 3}, 5}.get()));
  EXPECT_FALSE(is_same_memory(a.get(), Strided{{2, 3}, {3, 1}, 6}.get()));
}

TEST(Overlap, SurvivesStridesThatDoNotFit) {
  const int64_t huge = INT64_MAX / 2;
  EXPECT_TRUE(overlap(Strided{{3}, {huge}}.get(), Strided{{3}, {-huge}, 3}.get()));
}

// Never says "apart" of two that share an element: against the positions one by one.
TEST(Overlap, CountsNoStepThatIsBeyondEveryBuffer) {
  const Strided far{{2, 2}, {INT64_MAX, 1}};
  bp_tensor bytes = far.get();
  bytes.dtype = BP_BOOL;  // Its elements have 1 byte, so the step itself can be counted.
  const ByteRange range = byte_range(bytes);
  EXPECT_EQ(range.end, kFarthestByte);
}

TEST(Overlap, CountsTheBytesOfPackedElements) {
  const auto packed = [](bp_dtype dtype, std::vector<int64_t>& shape, std::vector<int64_t>& strides,
                         uint64_t byte) {
    Strided t{shape, strides};
    bp_tensor view = t.get();
    view.shape = shape.data();
    view.strides = strides.data();
    view.byte_offset = byte;
    view.dtype = dtype;
    return view;
  };
  std::vector<int64_t> five = {5}, one = {1}, two = {2}, back = {-1};
  EXPECT_EQ(byte_range(packed(BP_I4, five, one, 8)).end, 11);
  EXPECT_EQ(byte_range(packed(BP_F6E3M2, five, one, 8)).end, 12);
  EXPECT_EQ(byte_range(packed(BP_U2, five, two, 8)).end, 11);
  const ByteRange reversed = byte_range(packed(BP_I4, five, back, 8));
  EXPECT_EQ(reversed.begin, 6);
  EXPECT_EQ(reversed.end, 9);
  const bp_tensor a = packed(BP_I4, five, one, 8);
  EXPECT_TRUE(overlap(a, packed(BP_I4, five, one, 10))) << "they share a byte";
  EXPECT_FALSE(overlap(a, packed(BP_I4, five, one, 11)));
  EXPECT_FALSE(overlaps_itself(packed(BP_U2, five, two, 8)));
  std::vector<int64_t> rows = {5, 2}, crossed = {1, 2};
  EXPECT_TRUE(overlaps_itself(packed(BP_U2, rows, crossed, 8)));
}

TEST(Overlap, IsNeverWrongAboutTensorsThatMeet) {
  const unsigned seed = 20240607;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto make = [&pick] {
    Strided t;
    for (int64_t axis = pick(0, 3); axis > 0; --axis) {
      t.shape.push_back(pick(1, 4));
      t.strides.push_back(pick(-8, 8));
    }
    t.offset = static_cast<uint64_t>(pick(80, 110));
    return t;
  };
  int proven_apart = 0;
  for (int round = 0; round < 20000; ++round) {
    const Strided a = make();
    const Strided b = make();
    const auto list = a.positions();
    const std::set<int64_t> places(list.begin(), list.end());
    bool meets = false;
    for (const int64_t position : b.positions()) meets |= places.count(position) != 0;
    const bool says = overlap(a.get(), b.get());
    EXPECT_TRUE(says || !meets) << "round " << round;
    EXPECT_TRUE(overlaps_itself(a.get()) || places.size() == list.size()) << "round " << round;
    if (!says) ++proven_apart;
    const ByteRange range = byte_range(a.get());
    EXPECT_EQ(range.begin, *places.begin() * 4);
    EXPECT_EQ(range.end, *places.rbegin() * 4 + 4);
  }
  EXPECT_GT(proven_apart, 1000);
}

}  // namespace
}  // namespace bp
