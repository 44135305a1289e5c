// Tests the emulated device, and the functions of kernels that one thread computes alone.
#include "backends/cuda/emulation/emulation.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/kernels/device.cuh"
#include "backends/cuda/kernels/keys.cuh"
#include "backends/cuda/kernels/loop.hpp"
#include "backends/cuda/kernels/philox.cuh"
#include "backends/cuda/kernels/strides.cuh"
#include "backends/cuda/memory.hpp"

namespace bp::cuda {

// The host side of the backend needs a list of kernels, and layouts if the device has some. These
// tests launch no kernel.
std::span<const bp_kernel* const> kernel_list() { return {}; }
const Layouts* MemoryTraits::layouts_of(const Instance&) { return nullptr; }
void make_layouts(Instance&) {}

namespace {

emulation::Grid grid_of(unsigned blocks, unsigned threads) {
  return {dim3(blocks), dim3(threads), 0};
}

TEST(Emulation, RunsEachThreadOfEachBlockOnce) {
  std::vector<int> runs(size_t{3} * 64);
  emulation::run(grid_of(3, 64), [&] { ++runs[blockIdx.x * 64 + threadIdx.x]; });
  EXPECT_EQ(runs, std::vector<int>(size_t{3} * 64, 1));
}

TEST(Emulation, GivesEveryThreadTheSumOfItsBlock) {
  std::vector<int> sums(size_t{2} * 96);
  emulation::run(grid_of(2, 96), [&] {
    const int mine = static_cast<int>(blockIdx.x * 1000 + threadIdx.x);
    sums[blockIdx.x * 96 + threadIdx.x] = block_reduce(mine, Plus(), 0);
  });
  const int first = 95 * 96 / 2;
  for (size_t i = 0; i < 96; ++i) EXPECT_EQ(sums[i], first);
  for (size_t i = 96; i < 192; ++i) EXPECT_EQ(sums[i], first + 96 * 1000);
}

TEST(Emulation, ExchangesValuesInAWarp) {
  std::vector<uint32_t> sums(64), same(64);
  emulation::run(grid_of(1, 64), [&] {
    sums[threadIdx.x] = warp_running_sum(threadIdx.x % 32);
    same[threadIdx.x] = lanes_with_same<3>(threadIdx.x % 5);
  });
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t lane = i % 32;
    EXPECT_EQ(sums[i], lane * (lane + 1) / 2);
    for (uint32_t other = 0; other < 32; ++other) {
      EXPECT_EQ((same[i] >> other & 1) != 0, (i / 32 * 32 + other) % 5 == i % 5);
    }
  }
}

TEST(Emulation, SaysWhereThreadsWaitInDifferentBarriers) {
  const auto diverging = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else if (threadIdx.x == 40) {
      __syncwarp();
    }
  };
  EXPECT_THROW(emulation::run(grid_of(1, 64), diverging), std::logic_error);
  // The device still runs kernels.
  int runs = 0;
  emulation::run(grid_of(1, 64), [&] { atomicAdd(&runs, 1); });
  EXPECT_EQ(runs, 64);
}

// Half of all threads read what a neighbour writes, without a barrier. Of the two orders in which
// the threads of a block run, one gives wrong values.
TEST(Emulation, ShowsAMissingBarrier) {
  int wrong = 0;
  std::vector<int> written(64);
  emulation::run(grid_of(2, 64), [&] {
    const emulation::Unchecked unchecked;
    const unsigned i = threadIdx.x;
    written[i] = static_cast<int>(blockIdx.x) + 1;
    if (i % 2 == 0 && written[i + 1] != static_cast<int>(blockIdx.x) + 1) ++wrong;
  });
  EXPECT_EQ(wrong, 32);
}

TEST(Divider, DividesAsTheProcessorDoes) {
  std::mt19937 random(1);
  std::vector<uint32_t> numbers = {0, 1, 2, 3, 5, 255, 256, 257, 65535, 65536, 0x7FFFFFFF};
  for (int i = 0; i < 2000; ++i)
    numbers.push_back(static_cast<uint32_t>(random() >> (1 + random() % 30)));
  for (const uint32_t divisor : numbers) {
    if (divisor == 0) continue;
    const Divider divider(divisor);
    for (const uint32_t n : numbers)
      ASSERT_EQ(divider.divide(n), n / divisor) << n << " by " << divisor;
  }
}

TEST(Loop, IsCutIntoPartsThatCoverItOnce) {
  const int64_t shape[] = {5, 3, 7}, strides[] = {40, 10, 1}, from[] = {1, -5, 15};
  std::vector<std::byte> to(300), x(300);
  const Loop loop = make_loop(3, shape, {{to.data(), strides, 1}, {x.data() + 100, from, 1}});
  std::set<int64_t> written, read;
  for (const Loop& part : parts_of(loop, 16)) {
    EXPECT_LE(part.count, 16);
    const Axes<2> axes = part.axes<2>();
    for (uint32_t i = 0; i < part.count; ++i) {
      int64_t at[2];
      axes.locate(i, at);
      EXPECT_TRUE(written.insert(part.data[0] - to.data() + at[0]).second);
      read.insert(part.data[1] - x.data() + at[1]);
    }
  }
  EXPECT_EQ(written.size(), 105u);
  EXPECT_EQ(read.size(), 105u);
}

TEST(Loop, IsOneAxisForTensorsWithoutGaps) {
  const int64_t shape[] = {4, 1, 6}, strides[] = {6, 99, 1};
  alignas(16) static std::byte memory[96];
  const Loop loop = make_loop(3, shape, {{memory, strides, 4}, {memory, strides, 4}});
  EXPECT_EQ(loop.rank, 1);
  EXPECT_TRUE(loop.has_vectors(4));
  const int64_t transposed[] = {1, 99, 4};
  EXPECT_EQ(make_loop(3, shape, {{memory, strides, 4}, {memory, transposed, 4}}).rank, 2);
}

// If the double were first rounded to a float, the float would be a tie and would round down.
TEST(Rounding, IsDoneOnce) {
  EXPECT_EQ(widen(narrow<Float16>(1.0 + 0x1p-11 + 0x1p-40)), 1.0f + 0x1p-10f);
  EXPECT_EQ(widen(narrow<BFloat16>(1.0 + 0x1p-8 + 0x1p-40)), 1.0f + 0x1p-7f);
  EXPECT_EQ(widen(narrow<Float16>(int64_t{32784})), 32768.0f);
  EXPECT_EQ(widen(narrow<BFloat16>((int64_t{1} << 60) + (int64_t{1} << 52) + 1)),
            0x1p60f + 0x1p53f);
  EXPECT_EQ(widen(narrow<BFloat16>(-((int64_t{1} << 60) + (int64_t{1} << 52) + 1))),
            -0x1p60f - 0x1p53f);
  EXPECT_EQ(widen(narrow<Float16>(65520.0)), infinity<float>());
  EXPECT_EQ(widen(narrow<Float16>(65519.99999999)), 65504.0f);
  EXPECT_TRUE(is_nan(widen(narrow<BFloat16>(std::numeric_limits<double>::quiet_NaN()))));
}

// The authors of Philox published these words.
TEST(Philox, GivesTheWordsOfItsAuthors) {
  const PhiloxBlock zeros = philox(0, 0, 0);
  EXPECT_EQ(zeros.words[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.words[1], 0xe169c58du);
  EXPECT_EQ(zeros.words[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.words[3], 0x9b00dbd8u);
  const PhiloxBlock ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.words[0], 0x408f276du);
  EXPECT_EQ(ones.words[1], 0x41c83b0eu);
  EXPECT_EQ(ones.words[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.words[3], 0x6d5451fdu);
}

TEST(Keys, AreInTheOrderOfTheElements) {
  const float inf = infinity<float>();
  const float sorted[] = {-inf, -2.0f, -0x1p-149f, 0.0f, 0x1p-149f, 1.0f, inf};
  for (size_t i = 1; i < std::size(sorted); ++i) {
    EXPECT_LT(key_of(sorted[i - 1]), key_of(sorted[i])) << i;
  }
  EXPECT_EQ(key_of(-0.0f), key_of(0.0f));
  EXPECT_LT(key_of(inf), key_of(-std::numeric_limits<float>::quiet_NaN()));
  EXPECT_LT(key_of(int32_t{-5}), key_of(int32_t{4}));
  EXPECT_LT(key_of(std::numeric_limits<int64_t>::min()), key_of(int64_t{0}));
  EXPECT_LT(key_of(uint8_t{4}), key_of(uint8_t{200}));
}

TEST(Keys, GiveTheElementBackUnlessSeveralHaveTheKey) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = bits_as<Float16>(static_cast<uint16_t>(bits));
    const bool is_shared = widen(half) == 0 || is_nan(widen(half));
    EXPECT_EQ(is_shared_key<Float16>(key_of(half)), is_shared) << bits;
    if (is_shared) continue;
    EXPECT_EQ(bits_as<uint16_t>(element_of<Float16>(key_of(half))), bits);
    const auto number = static_cast<int16_t>(bits);
    EXPECT_EQ(element_of<int16_t>(key_of(number)), number);
  }
  EXPECT_EQ(element_of<double>(key_of(-1.5)), -1.5);
  EXPECT_EQ(element_of<uint8_t>(key_of(uint8_t{200})), 200);
}

}  // namespace
}  // namespace bp::cuda
