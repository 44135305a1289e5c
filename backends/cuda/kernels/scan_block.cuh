// Scans the values of the threads of a block, in their order. `Op` has identity() and combine(a,
// b), which is associative; a comes before b.
#pragma once

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

constexpr unsigned kScanThreads = 256, kScanWarps = kScanThreads / kWarpSize;

// What the threads of a block have: the total of the threads before this one, and of all threads.
template <typename A>
struct BlockTotals {
  A before, all;
};

template <typename A>
__device__ __forceinline__ A shuffle_up(A value, unsigned distance) {
  if constexpr (std::is_arithmetic_v<A>) {
    return __shfl_up_sync(kAllLanes, value, distance);
  } else {
    return value.shuffled_up(distance);
  }
}

// All threads of a block of kScanThreads call it.
template <class Op, typename A>
__device__ __forceinline__ BlockTotals<A> scan_block(A value) {
  __shared__ A warps[kScanWarps];
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  BP_UNROLL
  for (unsigned distance = 1; distance < kWarpSize; distance *= 2) {
    const A below = shuffle_up(value, distance);
    if (lane >= distance) value = Op::combine(below, value);
  }
  const A below = shuffle_up(value, 1);
  __syncthreads();  // An earlier call may still use `warps`.
  if (lane == kWarpSize - 1) warps[warp] = value;
  __syncthreads();
  BlockTotals<A> totals = {Op::template identity<A>(), Op::template identity<A>()};
  BP_UNROLL
  for (unsigned i = 0; i < kScanWarps; ++i) {
    if (i == warp) totals.before = totals.all;
    totals.all = Op::combine(totals.all, warps[i]);
  }
  if (lane > 0) totals.before = Op::combine(totals.before, below);
  return totals;
}

}  // namespace bp::cuda
