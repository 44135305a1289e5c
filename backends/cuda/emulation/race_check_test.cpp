// Tests which accesses of memory the emulated device calls races.
#include "backends/cuda/emulation/race_check.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/emulation/emulation.hpp"
#include "backends/cuda/emulation/mma.hpp"

#ifdef __SANITIZE_THREAD__

namespace bp::cuda::emulation {
namespace {

constexpr unsigned kThreads = 64;

// Uses a value, so that the compiler cannot leave out the read.
template <typename T>
void use(T value) {
  asm volatile("" ::"r"(static_cast<unsigned>(value)));
}

// Returns the error of a launch, or "".
template <typename Thread>
std::string error_of(unsigned blocks, const Thread& thread) {
  try {
    run({dim3(blocks), dim3(kThreads), 4 * kThreads}, thread);
  } catch (const std::logic_error& e) {
    return e.what();
  }
  return "";
}

// Each thread writes its value, waits, and reads the value of the thread `distance` further on.
template <typename Wait>
std::string error_of_neighbours(unsigned distance, const Wait& wait) {
  return error_of(2, [&] {
    __shared__ unsigned values[kThreads];
    values[threadIdx.x] = threadIdx.x;
    wait();
    const unsigned other = (threadIdx.x + distance) % kThreads;
    use(values[other]);
  });
}

TEST(RaceCheck, NeedsABarrierOfTheBlockBetweenWarps) {
  EXPECT_EQ(error_of_neighbours(32, [] { __syncthreads(); }), "");
  const std::string error = error_of_neighbours(32, [] { __syncwarp(); });
  EXPECT_NE(error.find("nothing orders a "), std::string::npos) << error;
  EXPECT_NE(error.find(" of one block, in shared memory"), std::string::npos) << error;
}

TEST(RaceCheck, NeedsABarrierOfTheWarpWithinOne) {
  const auto pairs = [](auto wait) {
    return error_of(1, [&] {
      __shared__ unsigned values[kThreads];
      values[threadIdx.x] = threadIdx.x;
      wait();
      use(values[threadIdx.x ^ 1]);
    });
  };
  EXPECT_EQ(pairs([] { __syncwarp(); }), "");
  EXPECT_EQ(pairs([] { __syncthreads(); }), "");
  EXPECT_NE(pairs([] {}), "");
  // A shuffle waits for the other threads, but orders no accesses of memory.
  EXPECT_NE(pairs([] { static_cast<void>(__shfl_xor_sync(~0u, 1, 1)); }), "");
}

// A barrier is missing before the values are written again.
TEST(RaceCheck, FindsAWriteThatDoesNotWaitForReads) {
  const auto steps = [](bool waits) {
    return error_of(1, [&] {
      __shared__ unsigned values[kThreads];
      for (unsigned step = 0; step < 2; ++step) {
        values[threadIdx.x] = step;
        __syncthreads();
        use(values[kThreads - 1 - threadIdx.x]);
        if (waits) __syncthreads();
      }
    });
  };
  EXPECT_EQ(steps(true), "");
  EXPECT_NE(steps(false), "");
}

TEST(RaceCheck, ChecksTheSharedMemoryThatALaunchAsksFor) {
  const auto reversed = [](bool waits) {
    return error_of(2, [&] {
      auto* const values = reinterpret_cast<unsigned*>(place().shared);
      values[threadIdx.x] = threadIdx.x;
      if (waits) __syncthreads();
      use(values[kThreads - 1 - threadIdx.x]);
    });
  };
  EXPECT_EQ(reversed(true), "");
  EXPECT_NE(reversed(false), "");
}

TEST(RaceCheck, FindsBlocksThatUseTheSameGlobalMemory) {
  std::vector<unsigned> values(2 * kThreads);
  unsigned total = 0;
  EXPECT_EQ(error_of(2, [&] { values[blockIdx.x * kThreads + threadIdx.x] = 1; }), "");
  EXPECT_EQ(error_of(2, [&] { atomicAdd(&total, values[threadIdx.x]); }), "");
  const std::string error = error_of(2, [&] { values[threadIdx.x] = blockIdx.x; });
  EXPECT_NE(error.find(" of two blocks, in global memory"), std::string::npos) << error;
  // An atomic access races with a plain one.
  EXPECT_NE(error_of(2,
                     [&] {
                       if (blockIdx.x == 0) atomicAdd(&total, 1u);
                       if (blockIdx.x == 1) total = 0;
                     }),
            "");
}

TEST(RaceCheck, FindsBytesThatLieBetweenOthers) {
  std::vector<uint8_t> bytes(kThreads);
  EXPECT_EQ(error_of(1, [&] { bytes[threadIdx.x] = 1; }), "");
  EXPECT_NE(error_of(1,
                     [&] {
                       bytes[threadIdx.x] = 1;
                       if (threadIdx.x == 40) {
                         *reinterpret_cast<uint32_t*>(bytes.data()) = 0;
                       }
                     }),
            "");
}

TEST(RaceCheck, FindsAddressesThatAreNoMultipleOfTheSize) {
  alignas(8) std::byte memory[16] = {};
  const auto read = [&](size_t offset) {
    return error_of(1, [&] {
      volatile const float* const at = reinterpret_cast<const float*>(memory + offset);
      static_cast<void>(*at);
    });
  };
  EXPECT_EQ(read(4), "");
  EXPECT_NE(read(2).find("is not a multiple"), std::string::npos);
}

// A copy writes at any time up to the wait for it.
TEST(RaceCheck, KnowsWhatCopiesWrite) {
  alignas(16) std::byte source[16 * kThreads] = {};
  const auto copy = [&](auto wait) {
    return error_of(1, [&] {
      std::byte* const shared = place().shared;
      if (threadIdx.x < 8) {
        copy_async(shared + 16 * threadIdx.x, source + 16 * threadIdx.x, true);
        commit_copies();
      }
      wait();
      use(shared[16 * ((threadIdx.x + 1) % 8)]);
    });
  };
  const auto wait_for_own = [] {
    if (threadIdx.x < 8) wait_for_copies<0>();
  };
  EXPECT_EQ(copy([&] {
              wait_for_own();
              __syncthreads();
            }),
            "");
  EXPECT_NE(copy([&] {
              __syncthreads();
              wait_for_own();
            }),
            "");
}

}  // namespace
}  // namespace bp::cuda::emulation

#else

TEST(RaceCheck, IsCompiledIn) {
  GTEST_SKIP() << "the emulation is built without the check (BACKPLANE_CUDA_EMULATION_CHECKS)";
}

#endif
