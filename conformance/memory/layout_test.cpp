#include "conformance/memory/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace bp::conformance {
namespace {

constexpr int kLayoutCount = static_cast<int>(Layout::kOffset) + 1;

std::vector<Shape> shapes() {
  return {{}, {1}, {7}, {1, 5}, {4, 6}, {3, 1, 2}, {2, 3, 4}, {2, 1, 3, 2}, {0}, {3, 0, 2}, {2, 0}};
}

template <typename Visit>
void each_layout(const Visit& visit) {
  for (const Shape& shape : shapes()) {
    for (int number = 0; number < kLayoutCount; ++number) {
      const auto layout = static_cast<Layout>(number);
      SCOPED_TRACE(std::string(layout_text(layout)) + " of rank " + std::to_string(shape.size()));
      visit(layout, shape, place(layout, shape));
    }
  }
}

TEST(Layouts, SpanExactlyTheirElements) {
  each_layout([](Layout, const Shape& shape, const Placement& placement) {
    const int64_t count = element_count(shape);
    if (count == 0) {
      EXPECT_EQ(placement.span(), 0);
      return;
    }
    int64_t lowest = INT64_MAX, highest = INT64_MIN;
    for (int64_t i = 0; i < count; ++i) {
      lowest = std::min(lowest, element_offset(placement, shape, i));
      highest = std::max(highest, element_offset(placement, shape, i));
    }
    EXPECT_EQ(lowest, placement.lowest);
    EXPECT_EQ(highest, placement.highest);
    EXPECT_EQ(element_offset(placement, shape, 0), 0);
  });
}

TEST(Layouts, GiveEachElementAPlaceOfItsOwnUnlessTheyBroadcast) {
  each_layout([](Layout layout, const Shape& shape, const Placement& placement) {
    std::set<int64_t> places;
    for (int64_t i = 0; i < element_count(shape); ++i) {
      places.insert(element_offset(placement, shape, i));
    }
    const auto count = static_cast<size_t>(element_count(shape));
    if (!is_broadcast(layout)) {
      EXPECT_EQ(places.size(), count);
    } else if (layout == Layout::kBroadcastAll) {
      EXPECT_EQ(places.size(), std::min<size_t>(count, 1));
    }
  });
}

TEST(Layouts, HaveStridesByTheirOffsets) {
  each_layout([](Layout, const Shape& shape, const Placement& placement) {
    ASSERT_EQ(placement.strides.size(), shape.size());
    for (int64_t i = 0; i < element_count(shape); ++i) {
      int64_t offset = 0, rest = i;
      for (size_t axis = shape.size(); axis-- > 0;) {
        offset += rest % shape[axis] * placement.strides[axis];
        rest /= shape[axis];
      }
      EXPECT_EQ(element_offset(placement, shape, i), offset) << i;
    }
  });
}

TEST(Layouts, NameTheFirstElementOfEachPlace) {
  each_layout([](Layout, const Shape& shape, const Placement& placement) {
    for (int64_t i = 0; i < element_count(shape); ++i) {
      const int64_t stored = stored_index(placement, shape, i);
      EXPECT_LE(stored, i);
      EXPECT_EQ(element_offset(placement, shape, stored), element_offset(placement, shape, i));
      EXPECT_EQ(stored_index(placement, shape, stored), stored);
    }
  });
}

TEST(Layouts, LieAsTheirNamesSay) {
  const Shape shape = {2, 3, 4};
  EXPECT_EQ(place(Layout::kDense, shape).strides, (Shape{12, 4, 1}));
  EXPECT_EQ(place(Layout::kOffset, shape).strides, (Shape{12, 4, 1}));
  EXPECT_EQ(place(Layout::kTransposed, shape).strides, (Shape{12, 1, 3}));
  EXPECT_EQ(place(Layout::kPermuted, shape).strides, (Shape{1, 2, 6}));
  EXPECT_EQ(place(Layout::kSliced, shape).strides, (Shape{21, 7, 1}));
  EXPECT_EQ(place(Layout::kSliced, shape, 1).strides, (Shape{15, 5, 1}));
  EXPECT_EQ(place(Layout::kStepped, shape).strides, (Shape{24, 8, 2}));
  EXPECT_EQ(place(Layout::kNegative, shape).strides, (Shape{12, 4, -1}));
  EXPECT_EQ(place(Layout::kReversed, shape).strides, (Shape{-12, -4, -1}));
  EXPECT_EQ(place(Layout::kReversed, shape).lowest, -23);
  EXPECT_EQ(place(Layout::kReversed, shape).highest, 0);
  EXPECT_EQ(place(Layout::kBroadcastFirst, shape).strides, (Shape{0, 4, 1}));
  EXPECT_EQ(place(Layout::kBroadcastLast, shape).strides, (Shape{12, 4, 0}));
  EXPECT_EQ(place(Layout::kBroadcastAll, shape).strides, (Shape{0, 0, 0}));
}

TEST(Layouts, HaveRowsNoShorterThanTheirElements) {
  EXPECT_EQ(place_rows({2, 3}, 8).strides, (Shape{8, 1}));
  EXPECT_EQ(place_rows({2, 3}, 1).strides, (Shape{3, 1})) << "rows never overlap";
  EXPECT_EQ(place_rows({}, 8).span(), 1);
}

TEST(Layouts, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int number = 0; number < kLayoutCount; ++number) {
    const std::string name = layout_text(static_cast<Layout>(number));
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

}  // namespace
}  // namespace bp::conformance
