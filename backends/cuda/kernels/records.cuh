// Sorts records of a key and an index, by key, and by index if keys are equal. No two records of a
// line are equal, so every sort of them is stable and gives equal bits.
//
// Tiles of 1024 records are sorted in shared memory (Batcher 1968, the bitonic network). Runs are
// then merged in pairs, where each record finds its place in the other run by bisection.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// A key of up to 32 bits above an index of 32 bits.
struct Packed {
  uint64_t bits;

  Packed() = default;
  __host__ __device__ Packed(uint64_t key, uint64_t index) : bits(key << 32 | index) {}
  __host__ __device__ uint64_t key() const { return bits >> 32; }
  __host__ __device__ uint64_t index() const { return bits & 0xFFFFFFFFu; }
  __host__ __device__ bool operator<(const Packed& other) const { return bits < other.bits; }
};

struct Wide {
  uint64_t high, low;

  Wide() = default;
  __host__ __device__ Wide(uint64_t key, uint64_t index) : high(key), low(index) {}
  __host__ __device__ uint64_t key() const { return high; }
  __host__ __device__ uint64_t index() const { return low; }
  __host__ __device__ bool operator<(const Wide& other) const {
    return high != other.high ? high < other.high : low < other.low;
  }
};

// Returns a record that sorts behind every record with an index below 2^32 - 1.
template <class Record>
__host__ __device__ Record last_record() {
  return Record(~uint64_t{0}, 0xFFFFFFFFu);
}

// Returns the key of an element, an unsigned number in the order of the elements. NaN is larger
// than every number, and -0 equals 0.
template <typename T>
__host__ __device__ __forceinline__ uint64_t key_of(T x) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<U>(static_cast<U>(x) ^ (U{1} << (8 * sizeof(T) - 1)));
  } else {
    using C = Compute<T>;  // Widening keeps the order.
    using U = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
    const C value = widen(x);
    if (is_nan(value)) return static_cast<U>(~U{0});
    const U bits = bits_as<U>(value == 0 ? C{0} : value), sign = U{1} << (8 * sizeof(U) - 1);
    return (bits & sign) != 0 ? static_cast<U>(~bits) : static_cast<U>(bits | sign);
  }
}

// The number of bits of a key of T.
template <typename T>
__host__ __device__ constexpr uint64_t key_mask() {
  return sizeof(Compute<T>) == 8 ? ~uint64_t{0} : 0xFFFFFFFFu;
}
template <typename T>
using RecordOf = std::conditional_t<sizeof(Compute<T>) == 8, Wide, Packed>;

constexpr uint32_t kSortTile = 1024, kSortThreads = kSortTile / 2;

// There are `lines` lines of `count` records, one after the other in `records`.
struct SortPlan {
  void* records = nullptr;
  void* merged = nullptr;  // The output of a merge.
  int64_t lines = 0, count = 0;
  uint32_t width = 0;      // The power of two that a tile sorts.
  int64_t run_length = 0;  // The length of the runs to merge.
};

template <class Record>
__global__ void __launch_bounds__(kSortThreads) sort_tiles_kernel(SortPlan plan) {
  __shared__ Record tile[kSortTile];
  const int64_t segments_of_line = (plan.count + plan.width - 1) / plan.width;
  Record* places[2];
  for (uint32_t k = 0; k < 2; ++k) {
    const uint32_t at = threadIdx.x + k * kSortThreads;
    const int64_t segment = int64_t{blockIdx.x} * (kSortTile / plan.width) + at / plan.width;
    const int64_t line = segment / segments_of_line;
    const int64_t i = segment % segments_of_line * plan.width + at % plan.width;
    const bool is_inside = line < plan.lines && i < plan.count;
    places[k] = is_inside ? static_cast<Record*>(plan.records) + line * plan.count + i : nullptr;
    tile[at] = is_inside ? *places[k] : last_record<Record>();
  }
  for (uint32_t size = 2; size <= plan.width; size *= 2) {
    for (uint32_t step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      const uint32_t low = threadIdx.x / step * step * 2 + threadIdx.x % step;
      const bool is_ascending = size == plan.width || (low & size) == 0;
      const Record a = tile[low], b = tile[low + step];
      if ((b < a) == is_ascending) {
        tile[low] = b;
        tile[low + step] = a;
      }
    }
  }
  __syncthreads();
  for (uint32_t k = 0; k < 2; ++k) {
    if (places[k] != nullptr) *places[k] = tile[threadIdx.x + k * kSortThreads];
  }
}

// Returns how many of the `count` sorted records are before `record`.
template <class Record>
__host__ __device__ __forceinline__ int64_t count_before(const Record* sorted, int64_t count,
                                                         const Record& record) {
  int64_t begin = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    if (sorted[begin + half] < record) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

template <class Record>
__global__ void __launch_bounds__(kBlockThreads) merge_runs_kernel(SortPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.count) return;
  const int64_t line = at / plan.count, i = at % plan.count;
  const Record* const records = static_cast<const Record*>(plan.records) + line * plan.count;
  const int64_t run = i / plan.run_length, other = run ^ 1;
  const int64_t left = plan.count - other * plan.run_length;  // Below 0 there is no other run.
  const int64_t length = left < 0 ? 0 : left < plan.run_length ? left : plan.run_length;
  const Record record = records[i];
  const int64_t rank = count_before(records + other * plan.run_length, length, record);
  const int64_t begin = (run & ~int64_t{1}) * plan.run_length;
  Record* const merged = static_cast<Record*>(plan.merged) + line * plan.count;
  merged[begin + (i - run * plan.run_length) + rank] = record;
}

// Returns the bytes that sorting needs: the records, and as many again if lines are longer than a
// tile.
template <class Record>
uint64_t records_size_bytes(int64_t lines, int64_t count) {
  const int64_t buffers = count > kSortTile ? 2 : 1;
  return static_cast<uint64_t>(buffers * lines * count) * sizeof(Record);
}

// Sorts the lines of `records`, which has records_size_bytes(). `out_sorted` is where the sorted
// records are.
template <class Record>
bp_status sort_records(Launch& launch, Record* records, int64_t lines, int64_t count,
                       const Record** out_sorted) {
  *out_sorted = records;
  if (lines == 0 || count <= 1) return BP_OK;
  SortPlan plan;
  plan.records = records;
  plan.lines = lines;
  plan.count = count;
  plan.width = 2;
  while (plan.width < kSortTile && plan.width < count) plan.width *= 2;
  const int64_t segments = lines * ((count + plan.width - 1) / plan.width);
  bp_status status = run<sort_tiles_kernel<Record>>(
      launch, blocks_for(segments, kSortTile / plan.width), kSortThreads, 0, plan);
  if (status != BP_OK) return status;
  Record* from = records;
  Record* to = records + lines * count;
  for (plan.run_length = kSortTile; plan.run_length < count; plan.run_length *= 2) {
    plan.records = from;
    plan.merged = to;
    status = run<merge_runs_kernel<Record>>(launch, blocks_for(lines * count, kBlockThreads),
                                            kBlockThreads, 0, plan);
    if (status != BP_OK) return status;
    std::swap(from, to);
  }
  *out_sorted = from;
  return BP_OK;
}

}  // namespace bp::cuda
