// Tests sets of bytes against one flag for each byte.
#include "conformance/recordings/byte_set.hpp"

#include <gtest/gtest.h>

#include <random>

namespace bp::conformance {
namespace {

TEST(ByteSet, AgreesWithAFlagForEachByte) {
  constexpr uint64_t kSize = 40;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    ByteSet set;
    std::vector<bool> flags(kSize, false);
    for (int step = 0; step < 20; ++step) {
      const uint64_t begin = random() % kSize, end = begin + random() % (kSize - begin + 1);
      const bool is_inserted = random() % 3 != 0;
      is_inserted ? set.insert(begin, end) : set.erase(begin, end);
      std::fill(flags.begin() + static_cast<int64_t>(begin),
                flags.begin() + static_cast<int64_t>(end), is_inserted);
      std::vector<bool> seen(kSize, false);
      for (const auto& [first, last] : set.within(0, kSize)) {
        ASSERT_LT(first, last) << "seed " << seed;
        for (uint64_t i = first; i < last; ++i) seen[i] = true;
      }
      ASSERT_EQ(seen, flags) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(ByteSet, GivesThePartsOfARange) {
  ByteSet set;
  set.insert(4, 8);
  set.insert(12, 16);
  using Ranges = std::vector<ByteSet::Range>;
  EXPECT_EQ(set.within(0, 4), Ranges{});
  EXPECT_EQ(set.within(6, 13), (Ranges{{6, 8}, {12, 13}}));
  set.insert(8, 12);
  EXPECT_EQ(set.within(0, 99), (Ranges{{4, 16}})) << "ranges that touch become one";
}

}  // namespace
}  // namespace bp::conformance
