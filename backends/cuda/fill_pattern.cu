// Fills memory with a pattern of 1 to 16 bytes. A pattern whose size divides 16 is written in words
// of 16 bytes if the address allows it, and any other pattern byte by byte.
#include <algorithm>

#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMaxBlocks = 4096;  // Each block fills several parts.

__global__ void fill_words(uint4* to, uint64_t count, uint4 word) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = word;
  }
}

__global__ void fill_bytes(uint8_t* to, uint64_t count, const __grid_constant__ Pattern pattern) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = pattern.bytes[i % pattern.size_bytes];
  }
}

unsigned blocks_for(uint64_t count) {
  return static_cast<unsigned>(std::min<uint64_t>((count + kThreads - 1) / kThreads, kMaxBlocks));
}

}  // namespace

void fill_pattern(const Driver& driver, cudaStream_t stream, std::byte* to, uint64_t size_bytes,
                  const Pattern& pattern) {
  if (size_bytes == 0) return;
  if (pattern.size_bytes == 1) {
    check(driver, driver.cudaMemsetAsync(to, pattern.bytes[0], size_bytes, stream), "fill");
    return;
  }
  uint64_t count = size_bytes / sizeof(uint4);
  const bool is_words = reinterpret_cast<uintptr_t>(to) % sizeof(uint4) == 0 &&
                        size_bytes % sizeof(uint4) == 0 && sizeof(uint4) % pattern.size_bytes == 0;
  if (is_words) {
    uint4 word;
    auto* const bytes = reinterpret_cast<uint8_t*>(&word);
    for (size_t i = 0; i < sizeof(word); ++i) bytes[i] = pattern.bytes[i % pattern.size_bytes];
    void* args[] = {&to, &count, &word};
    check(driver,
          driver.cudaLaunchKernel(reinterpret_cast<const void*>(fill_words), blocks_for(count),
                                  kThreads, args, 0, stream),
          "fill");
    return;
  }
  Pattern copied = pattern;
  void* args[] = {&to, &size_bytes, &copied};
  check(driver,
        driver.cudaLaunchKernel(reinterpret_cast<const void*>(fill_bytes), blocks_for(size_bytes),
                                kThreads, args, 0, stream),
        "fill");
}

}  // namespace bp::cuda
