// Sorts records of a key and a place, by key, and by place if keys are equal. No two records of a
// line are equal, so every sort of them is stable and gives equal bits.
//
// Records are sorted in shared memory (Batcher 1968, the bitonic network), which suits short lines:
// it needs no counters, and a block sorts several of them.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

// A key of up to 32 bits above a place of 32 bits.
struct Packed {
  uint64_t bits;

  Packed() = default;
  __host__ __device__ Packed(uint64_t key, uint64_t place) : bits(key << 32 | place) {}
  __host__ __device__ uint64_t key() const { return bits >> 32; }
  __host__ __device__ uint32_t place() const { return static_cast<uint32_t>(bits); }
  __host__ __device__ bool operator<(const Packed& other) const { return bits < other.bits; }
};

struct Wide {
  uint64_t high;
  uint32_t low;

  Wide() = default;
  __host__ __device__ Wide(uint64_t key, uint64_t place)
      : high(key), low(static_cast<uint32_t>(place)) {}
  __host__ __device__ uint64_t key() const { return high; }
  __host__ __device__ uint32_t place() const { return low; }
  __host__ __device__ bool operator<(const Wide& other) const {
    return high != other.high ? high < other.high : low < other.low;
  }
};

template <class Key>
using RecordOf = std::conditional_t<sizeof(Key) == 8, Wide, Packed>;

// Returns a record that sorts behind every record with a place below 2^32 - 1.
template <class Record>
__host__ __device__ Record last_record() {
  return Record(~uint64_t{0}, 0xFFFFFFFFu);
}

// Sorts each run of `width` records of `records`, where both numbers are powers of two. All threads
// of the block call it.
template <class Record>
__device__ __forceinline__ void sort_runs(Record* records, uint32_t count, uint32_t width) {
  for (uint32_t size = 2; size <= width; size *= 2) {
    for (uint32_t step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (uint32_t pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        const uint32_t low = 2 * pair - (pair & (step - 1));
        const bool is_ascending = size == width || (low & size) == 0;
        const Record a = records[low], b = records[low + step];
        if ((b < a) == is_ascending) {
          records[low] = b;
          records[low + step] = a;
        }
      }
    }
  }
  __syncthreads();
}

constexpr uint32_t kSortTile = 1024, kSortThreads = kSortTile / 2;
constexpr uint32_t kShortLine = 256;

struct ShortLines {
  uint32_t lines = 0, count = 0;
  uint32_t width = 0;  // The power of two that holds a line.
};

// Sorts several short lines in each block. radix_sort.cuh says what Io is.
template <class Io>
__global__ void __launch_bounds__(kSortThreads) sort_short_lines_kernel(Io io, ShortLines plan) {
  using Key = typename Io::Key;
  using Item = RecordOf<Key>;
  __shared__ Item tile[kSortTile];
  const uint32_t first_line = blockIdx.x * (kSortTile / plan.width);
  for (uint32_t at = threadIdx.x; at < kSortTile; at += kSortThreads) {
    const uint32_t line = first_line + at / plan.width, i = at % plan.width;
    const bool is_inside = line < plan.lines && i < plan.count;
    tile[at] = is_inside ? Item(io.line(line).key(i), i) : last_record<Item>();
  }
  sort_runs(tile, kSortTile, plan.width);
  for (uint32_t at = threadIdx.x; at < kSortTile; at += kSortThreads) {
    const uint32_t line = first_line + at / plan.width, i = at % plan.width;
    if (line >= plan.lines || i >= plan.count) continue;
    io.line(line).put(i, static_cast<Key>(tile[at].key()), tile[at].place());
  }
}

template <class Io>
bp_status sort_short_lines(Launch& launch, const Io& io, int64_t lines, uint32_t count) {
  ShortLines plan;
  plan.lines = static_cast<uint32_t>(lines);
  plan.count = count;
  plan.width = 1;
  while (plan.width < count) plan.width *= 2;
  return run<sort_short_lines_kernel<Io>>(launch, blocks_for(lines, kSortTile / plan.width),
                                          kSortThreads, 0, io, plan);
}

}  // namespace bp::cuda
