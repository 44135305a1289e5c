// Sums of elements that indices name. The indices are sorted with their positions, and each result
// adds its positions in order, so equal input gives equal bits.
#pragma once

#include "backends/cuda/kernels/radix_sort.cuh"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

// Indices in order, and the positions that they had: (lines, count) each. An index that is out of
// range is the last one, and names no result.
struct SortedIndices {
  uint32_t* keys = nullptr;
  uint32_t* positions = nullptr;
};

// There are `lines` lines of `count` indices.
struct IndexPlan {
  RowTensor indices;
  int64_t lines = 0, count = 0;
  Bounds bounds;
  SortedIndices sorted;
  Reporter reporter{};
};

// Reads and writes indices, as radix_sort.cuh asks for it. An index out of range is reported.
template <typename Index>
struct IndexIo {
  using Key = uint32_t;

  struct Line {
    __device__ __forceinline__ Key key(uint32_t i) const {
      const Index* const place = row + plan.indices.elements.offset(i);
      const int64_t index = plan.bounds.acting(*place);
      if (plan.bounds.contains(index)) return static_cast<Key>(index);
      report(plan.reporter, index, place);
      return kLastKey<Key>;
    }
    __device__ __forceinline__ void put(uint32_t rank, Key index, uint32_t position) const {
      plan.sorted.keys[begin + rank] = index;
      plan.sorted.positions[begin + rank] = position;
    }

    const IndexPlan& plan;
    const Index* row;
    int64_t begin;
  };
  __device__ Line line(uint32_t number) const {
    return {plan, plan.indices.row<Index>(number), number * plan.count};
  }

  IndexPlan plan;
};

// Returns how many of `count` sorted keys are below `key`.
__device__ __forceinline__ int64_t count_below(const uint32_t* keys, int64_t count, uint32_t key) {
  int64_t begin = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    if (keys[begin + half] < key) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

// ---- On the host --------------------------------------------------------------------------------

// Returns the memory of the sorted indices alone, in whole units of 16 bytes.
inline uint64_t sorted_bytes(int64_t lines, int64_t count) {
  return (2 * sizeof(uint32_t) * static_cast<uint64_t>(lines * count) + 15) / 16 * 16;
}

// Returns the workspace of sort_indices().
inline uint64_t sort_indices_bytes(int64_t lines, int64_t count) {
  return sorted_bytes(lines, count) + sort_size_bytes(lines, count, sizeof(uint32_t));
}

// Sorts the indices of a plan. Sets plan.sorted, which lies in `workspace`.
inline bp_status sort_indices(Launch& launch, IndexPlan& plan, bool is_i64, std::byte* workspace) {
  plan.sorted.keys = reinterpret_cast<uint32_t*>(workspace);
  plan.sorted.positions = plan.sorted.keys + plan.lines * plan.count;
  std::byte* const rest = workspace + sorted_bytes(plan.lines, plan.count);
  return is_i64 ? sort_lines(launch, IndexIo<int64_t>{plan}, plan.lines, plan.count, rest)
                : sort_lines(launch, IndexIo<int32_t>{plan}, plan.lines, plan.count, rest);
}

}  // namespace bp::cuda
