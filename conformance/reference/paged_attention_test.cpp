// Tests the oracles of paged caches against results worked out by hand.
#include "conformance/reference/paged_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

TEST(PagedAttention, ASlotNamesABlockAndARowOfIt) {
  Array<double> cache({2, 2, 1, 2}), x({4, 1, 2});
  x.data = {1, 2, 3, 4, 5, 6, 7, 8};
  Array<int64_t> slots({4});
  slots.data = {3, -1, 0, 3};  // The last token takes the row of the first.
  EXPECT_EQ(kv_cache_append(cache, x, slots).data, (Values{5, 6, 0, 0, 0, 0, 7, 8}));
}

// Two sequences share a cache of blocks of two rows, whose scores are all 0: a result is the mean
// of the values that a query sees.
PagedAttention<double> means() {
  PagedAttention<double> p;
  p.q = Array<double>({5, 1, 1});
  p.k_cache = Array<double>({3, 2, 1, 1});
  p.v_cache = Array<double>({3, 2, 1, 1});
  p.v_cache.data = {1, 2, 4, 8, 16, 32};
  p.block_table = Array<int64_t>({2, 2});
  p.block_table.data = {2, 0, 1, 99};
  p.lengths = Array<int64_t>({2});
  p.lengths.data = {3, 2};
  p.offsets = Array<int64_t>({3});
  p.offsets.data = {1, 3, 4};
  return p;
}

TEST(PagedAttention, QueriesEndAtTheLastKeyOfTheirSequence) {
  // The keys are 16, 32 and 1 in the first sequence, and 4 and 8 in the second one.
  EXPECT_EQ(paged_attention(means()).data, (Values{0, 24, 49.0 / 3, 6, 0}));
}

TEST(PagedAttention, AWindowCountsTheKeyAtThePosition) {
  PagedAttention<double> p = means();
  p.window_left = 1;
  EXPECT_EQ(paged_attention(p).data, (Values{0, 32, 1, 8, 0}));
}

TEST(PagedAttention, ScoresWeighTheValues) {
  PagedAttention<double> p = means();
  p.q.data = {0, 0, 0, 2, 0};
  p.k_cache.data = {0, 0, std::log(3.0), 0, 0, 0};
  p.scale = 0.5;
  EXPECT_NEAR(paged_attention(p).data[3], 5, 1e-14);  // The weights are 3/4 and 1/4.
}

TEST(PagedAttention, HeadsReadTheKeysOfTheirGroup) {
  PagedAttention<double> p;
  p.q = Array<double>({1, 4, 1});
  p.k_cache = p.v_cache = Array<double>({1, 1, 2, 1});
  p.v_cache.data = {5, 7};
  p.block_table = Array<int64_t>({1, 1});
  p.lengths = Array<int64_t>({1});
  p.lengths.data = {1};
  p.offsets = Array<int64_t>({2});
  p.offsets.data = {0, 1};
  EXPECT_EQ(paged_attention(p).data, (Values{5, 5, 7, 7}));
}

}  // namespace
}  // namespace bp::conformance::reference
