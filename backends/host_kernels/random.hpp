// The arguments that the random kernels pass to the code that is compiled for each processor
// (random.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/scalar.hpp"

namespace bp::kernels {

// The number of blocks that are computed side by side.
constexpr size_t kRandomBlocks = 64;

enum class RandomKind { kBits, kFraction, kNormalValue, kDropped };

// The elements with the numbers first, first + 1, ... of a tensor. They are equally far apart in y,
// and in x.
struct RandomRun {
  RandomKind kind = RandomKind::kBits;
  bp_dtype dtype = 0;
  uint64_t seed = 0, offset = 0;
  double p = 0, mean = 0, std = 0;
  int64_t first = 0, count = 0;
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  int64_t y_stride = 0, x_stride = 0;  // In bytes.
};

// Writes the elements of a run.
void run_random(const RandomRun& run);

}  // namespace bp::kernels
