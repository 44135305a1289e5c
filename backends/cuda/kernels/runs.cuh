// Sums over runs of equal keys in a sorted list, such as the positions that one index names. The
// list is cut into chunks, each of which one thread adds up, so that a run of very many positions
// is the work of many threads: a run that lies in one chunk is finished there, and the parts of a
// longer run are added up in order afterwards. The cuts depend on the count alone, so equal input
// gives equal bits.
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

struct Runs {
  const uint32_t* keys = nullptr;
  int64_t count = 0, chunk = 1;
  uint32_t extent = 0;  // Keys from here on name no result. They are the last ones.

  __host__ __device__ int64_t chunk_count() const { return (count + chunk - 1) / chunk; }
  __device__ int64_t begin_of(int64_t number) const { return number * chunk; }
  __device__ int64_t end_of(int64_t number) const {
    const int64_t end = (number + 1) * chunk;
    return end < count ? end : count;
  }
  // Returns whether the run of place k goes on behind it.
  __device__ bool goes_on(int64_t k) const { return k + 1 < count && keys[k + 1] == keys[k]; }
  // Returns whether the run at the begin of a chunk began in an earlier one.
  __device__ bool is_begun(int64_t number) const {
    const int64_t begin = begin_of(number);
    return begin > 0 && goes_on(begin - 1);
  }
};

// Returns the length of a chunk. The longest run then takes some 2 * sqrt(count) additions in turn
// where count is large: `chunk` in its chunks, and one for each of them.
inline int64_t chunk_of(int64_t count) {
  constexpr int64_t kLeastChunk = 32, kMostChunks = 2048;
  return std::max(kLeastChunk, (count + kMostChunks - 1) / kMostChunks);
}

// Each chunk has two parts: of a run that began in an earlier chunk, and of one that begins here
// and goes on in the next.
constexpr int kPartsOfChunk = 2;
__host__ __device__ __forceinline__ int64_t part_of(int64_t number, bool is_begun) {
  return kPartsOfChunk * number + (is_begun ? 0 : 1);
}

// Adds up the runs of one chunk. value(k) is the term at place k of the list, finish(key, sum)
// takes the sum of a whole run, and part(number) is the memory of a part of a longer one. A sum of
// negative zeros is -0.
template <typename Sum, typename Value, typename Finish, typename Part>
__device__ __forceinline__ void add_chunk(const Runs& runs, int64_t number, const Value& value,
                                          const Finish& finish, const Part& part) {
  const int64_t end = runs.end_of(number);
  bool is_begun = runs.is_begun(number);
  LongSum<Sum> sum(static_cast<Sum>(-0.0));
  for (int64_t k = runs.begin_of(number); k < end; ++k) {
    const uint32_t key = runs.keys[k];
    if (key >= runs.extent) return;
    sum.add(value(k));
    const bool goes_on = runs.goes_on(k);
    if (goes_on && k + 1 < end) continue;
    if (goes_on || is_begun) {
      *part(part_of(number, is_begun)) = sum.total();
    } else {
      finish(key, sum.total());
    }
    is_begun = false;
    sum = LongSum<Sum>(static_cast<Sum>(-0.0));
  }
}

// Adds up the parts of the run that begins in a chunk and ends in a later one, if there is one.
template <typename Sum, typename Finish, typename Part>
__device__ __forceinline__ void add_parts(const Runs& runs, int64_t number, const Finish& finish,
                                          const Part& part) {
  const int64_t last = runs.end_of(number) - 1;
  const uint32_t key = runs.keys[last];
  if (key >= runs.extent || !runs.goes_on(last)) return;
  if (runs.keys[runs.begin_of(number)] == key && runs.is_begun(number)) return;
  LongSum<Sum> sum(*part(part_of(number, false)));
  for (int64_t next = number + 1;
       next < runs.chunk_count() && runs.keys[runs.begin_of(next)] == key; ++next) {
    sum.add(*part(part_of(next, true)));
  }
  finish(key, sum.total());
}

}  // namespace bp::cuda
