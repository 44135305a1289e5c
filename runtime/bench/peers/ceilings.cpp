// Measures the limits of the machine, which are the best that a kernel could reach.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "runtime/bench/peers/worker.hpp"

namespace bp::bench {
namespace {

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr int kAccumulators = 96;  // They suffice to hide the latency of a multiply-add.

// The compiler makes one multiply-add of each line and keeps the accumulators in registers.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) float multiply_add(
    int64_t rounds, float factor, float term) {
  float sums[kAccumulators] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum = sum * factor + term;
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

using Array = std::unique_ptr<float[]>;

Array make_array(int64_t count) {
  Array array = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
  std::fill_n(array.get(), count, 1.0F);
  return array;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) float sum(
    const float* x, int64_t n) {
  float sums[64] = {};
  for (int64_t i = 0; i + 64 <= n; i += 64) {
    for (int64_t k = 0; k < 64; ++k) sums[k] += x[i + k];
  }
  return std::accumulate(sums, sums + 64, 0.0F);
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void add_arrays(
    const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace

double memory_bandwidth(int threads) {
  constexpr int64_t kCount = int64_t{32} << 20;  // The floats of an array exceed every cache.
  const auto a = make_array(kCount), b = make_array(kCount), c = make_array(kCount);
  const auto best_seconds = [&](auto&& part_of) {
    double best = 1e9;
    for (int i = 0; i < 7; ++i) {
      best = std::min(best, seconds_of([&] {
#pragma omp parallel for num_threads(threads)
                        for (int part = 0; part < threads; ++part) {
                          const int64_t begin = kCount * part / threads;
                          part_of(begin, kCount * (part + 1) / threads - begin);
                        }
                      }));
    }
    return best;
  };
  volatile float sink = 0;
  const double bytes = sizeof(float) * static_cast<double>(kCount);
  const double read =
      bytes / best_seconds([&](int64_t begin, int64_t n) { sink = sum(a.get() + begin, n); });
  const double copy =
      2 * bytes / best_seconds([&](int64_t begin, int64_t n) {
        std::memcpy(c.get() + begin, a.get() + begin, sizeof(float) * static_cast<size_t>(n));
      });
  const double add = 3 * bytes / best_seconds([&](int64_t begin, int64_t n) {
                       add_arrays(a.get() + begin, b.get() + begin, c.get() + begin, n);
                     });
  return std::max({read, copy, add});
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
