// All-reduces around the sizes at which they take another way: with the descriptions, to all ranks
// at once, by parts, and by parts in several pieces.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/groups/groups_test.hpp"

namespace bp::cpu {
namespace {

// The memory of one rank: what it sends and what it gets, which are the same range in place.
struct Memory {
  bp_buffer* buffer;
  float *sent, *got;
};

// Small whole numbers, so that each order of summing gives the same.
float element(size_t rank, uint64_t i) { return static_cast<float>((i * 7 + rank * 13) % 11) - 5; }

float expected(bp_reduction reduction, size_t ranks, uint64_t i) {
  float sum = 0, most = -INFINITY;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const float scale = reduction == BP_REDUCTION_SCALED_SUM ? static_cast<float>(rank) - 0.5f : 1;
    sum += scale * element(rank, i);
    most = std::max(most, element(rank, i));
  }
  if (reduction == BP_REDUCTION_MAX) return most;
  return reduction == BP_REDUCTION_AVERAGE ? sum / static_cast<float>(ranks) : sum;
}

class AllReduces {
 public:
  AllReduces(size_t ranks, uint64_t most) {
    std::vector<uint32_t> numbers;
    for (uint32_t rank = 0; rank < ranks; ++rank) numbers.push_back(rank);
    EXPECT_EQ(ranks_.create(numbers, static_cast<uint32_t>(ranks), nullptr), BP_OK)
        << ranks_.text();
    for (size_t rank = 0; rank < ranks; ++rank) {
      bp_buffer* const buffer = ranks_.backend().make_buffer(2 * most * sizeof(float));
      uint64_t address = 0;
      ranks_.backend().allocator->address(ranks_.backend().allocator->self, buffer, &address);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
      auto* const values = reinterpret_cast<float*>(address);
      memory_.push_back({buffer, values, values + most});
    }
  }

  // Runs one all-reduce, and returns how many elements of all ranks are wrong.
  uint64_t wrong(bp_reduction reduction, uint64_t count, bool is_in_place) {
    std::vector<bp_collective_call> calls;
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      for (uint64_t i = 0; i < count; ++i) memory_[rank].sent[i] = element(rank, i);
      calls.push_back(call(rank, reduction, count, is_in_place));
    }
    EXPECT_EQ(ranks_.submit(calls), BP_OK) << ranks_.text();
    uint64_t wrong = 0;
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      EXPECT_EQ(ranks_.outcome(rank), BP_OK) << ranks_.text();
      const Memory& m = memory_[rank];
      const float* const got = is_in_place ? m.sent : m.got;
      for (uint64_t i = 0; i < count; ++i) {
        wrong += got[i] != expected(reduction, memory_.size(), i) ? 1 : 0;
        wrong += !is_in_place && m.sent[i] != element(rank, i) ? 1 : 0;
      }
    }
    return wrong;
  }

  // Lets the ranks sum up other counts, and returns what the last one is told.
  std::string told(const std::vector<uint64_t>& counts) {
    std::vector<bp_collective_call> calls;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      calls.push_back(call(rank, BP_REDUCTION_SUM, counts[rank], false));
    }
    EXPECT_EQ(ranks_.submit(calls), BP_OK) << ranks_.text();
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      EXPECT_EQ(ranks_.outcome(rank), BP_INVALID_ARGUMENT) << ranks_.text();
    }
    return ranks_.text();
  }

 private:
  bp_collective_call call(size_t rank, bp_reduction reduction, uint64_t count, bool is_in_place) {
    const Memory& m = memory_[rank];
    bp_collective_call made = ranks_.call(rank, BP_COLLECTIVE_ALL_REDUCE, reduction, count);
    made.scale = static_cast<double>(rank) - 0.5;
    made.send = {m.buffer, 0, count * sizeof(float)};
    const auto apart = static_cast<uint64_t>(m.got - m.sent) * sizeof(float);
    made.receive = {m.buffer, is_in_place ? 0 : apart, count * sizeof(float)};
    return made;
  }

  Ranks ranks_;
  std::vector<Memory> memory_;
};

void check(size_t ranks, std::vector<uint64_t> counts) {
  AllReduces all(ranks, std::ranges::max(counts));
  for (const uint64_t count : counts) {
    for (const bp_reduction reduction :
         {BP_REDUCTION_SUM, BP_REDUCTION_MAX, BP_REDUCTION_AVERAGE, BP_REDUCTION_SCALED_SUM}) {
      for (const bool is_in_place : {false, true}) {
        // Whole numbers divided by three are not exact, but every rank rounds them once.
        EXPECT_EQ(all.wrong(reduction, count, is_in_place), 0u)
            << "reduction " << reduction << ", " << count << " elements, in place " << is_in_place;
      }
    }
  }
}

TEST(AllReduce, IsRightAtEachSizeOnTwoRanks) {
  check(2, {1, 1024, 1025, 32768, 32769, 262144, 524287, 1'100'003});
}
TEST(AllReduce, IsRightAtEachSizeOnThreeRanks) {
  check(3, {2, 512, 513, 16384, 16385, 393'217, 900'001});
}
TEST(AllReduce, IsRightAtEachSizeOnFiveRanks) { check(5, {3, 256, 257, 8192, 8193, 700'001}); }

// Ranks that take different ways ask for messages that never come.
TEST(AllReduce, TellsRanksThatGiveOtherCounts) {
  for (const std::vector<uint64_t>& counts : {std::vector<uint64_t>{4, 5},
                                              {4, 20'000},
                                              {4, 400'000},
                                              {20'000, 400'000},
                                              {300'000, 400'000}}) {
    AllReduces two(2, counts[1]);
    const std::string text = two.told(counts);
    for (const uint64_t count : counts) {
      EXPECT_NE(text.find(std::to_string(count)), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace bp::cpu
