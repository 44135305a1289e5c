// The limits of the machine, measured: what a kernel could reach at best.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "runtime/bench/peers/worker.hpp"

namespace bp::bench {
namespace {

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr int kAccumulators = 96;  // Enough to hide the latency of a multiply-add.

// The compiler makes one multiply-add of each line, and keeps the accumulators in registers.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3"))) float
multiply_add(int64_t rounds, float factor, float term) {
  float sums[kAccumulators] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum = sum * factor + term;
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

double copy_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{128} << 20;
  const auto from = std::make_unique<char[]>(kBytes);
  const auto to = std::make_unique<char[]>(kBytes);
  std::memset(from.get(), 1, kBytes);
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    best = std::min(best, seconds_of([&] {
#pragma omp parallel for num_threads(threads)
                      for (int part = 0; part < threads; ++part) {
                        const size_t begin = kBytes / threads * part;
                        std::memcpy(to.get() + begin, from.get() + begin, kBytes / threads);
                      }
                    }));
  }
  return 2.0 * kBytes / best;
}

double peak_flops(int threads) {
  constexpr int64_t kRounds = 1 << 22;
  volatile float sink = 0;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, seconds_of([&] {
#pragma omp parallel for num_threads(threads)
                      for (int part = 0; part < threads; ++part) {
                        sink = multiply_add(kRounds, 0.999F, 1e-3F);
                      }
                    }));
  }
  return 2.0 * kAccumulators * kRounds * threads / best;
}

}  // namespace bp::bench
