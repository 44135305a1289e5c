// Orders a tile of keys by one digit of 8 bits, in shared memory. radix_sort.cuh sorts lines with
// it.
//
// Each thread has kItems keys. Warp w has the keys from number w * 32 * kItems on, and item k of a
// lane is key k * 32 + lane of its warp, so that loads are coalesced. A warp ranks its keys without
// atomic operations: lanes with the same digit find each other by ballots, and one of them adds
// their number to the count of the digit. Equal digits keep their order.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

constexpr uint32_t kDigitBits = 8, kDigits = 1u << kDigitBits;
template <class Key>
__host__ __device__ __forceinline__ uint32_t digit_of(Key key, uint32_t pass) {
  return static_cast<uint32_t>(key >> (pass * kDigitBits)) & (kDigits - 1);
}

// Adds the totals before each, by the first warp: `totals` become where each digit begins.
__device__ __forceinline__ void add_digits_before(uint32_t* totals) {
  constexpr uint32_t kOfLane = kDigits / kWarpSize;
  if (threadIdx.x >= kWarpSize) return;
  uint32_t* const own = totals + threadIdx.x * kOfLane;
  uint32_t sum = 0;
  BP_UNROLL
  for (uint32_t i = 0; i < kOfLane; ++i) sum += own[i];
  uint32_t before = warp_running_sum(sum) - sum;
  BP_UNROLL
  for (uint32_t i = 0; i < kOfLane; ++i) {
    const uint32_t total = own[i];
    own[i] = before;
    before += total;
  }
}

// A tile in shared memory, of kItems keys for each thread.
template <class Key, uint32_t kItems>
struct RadixTile {
  __device__ explicit RadixTile(std::byte* memory)
      : keys(reinterpret_cast<Key*>(memory)),
        places(reinterpret_cast<uint32_t*>(keys + blockDim.x * kItems)),
        begins(places + blockDim.x * kItems),
        bases(begins + kDigits),
        counts(reinterpret_cast<uint16_t*>(bases + kDigits)) {}
  static size_t size_bytes(uint32_t threads) {
    return threads * kItems * (sizeof(Key) + sizeof(uint32_t)) + 2 * kDigits * sizeof(uint32_t) +
           threads / kWarpSize * kDigits * sizeof(uint16_t);
  }

  // Returns the number in the tile of an item of this thread.
  __device__ static uint32_t number_of(uint32_t item) {
    return (threadIdx.x / kWarpSize * kItems + item) * kWarpSize + threadIdx.x % kWarpSize;
  }

  // Gives each key its rank among the keys of its warp with the same digit, and counts the digits
  // of each warp.
  __device__ __forceinline__ void rank_in_warps(const Key (&own)[kItems], uint32_t pass,
                                                uint32_t (&ranks)[kItems]) const {
    const uint32_t lane = threadIdx.x % kWarpSize;
    uint16_t* const of_warp = counts + threadIdx.x / kWarpSize * kDigits;
    for (uint32_t digit = lane; digit < kDigits; digit += kWarpSize) of_warp[digit] = 0;
    __syncwarp();
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      const uint32_t digit = digit_of(own[k], pass);
      const uint32_t same = lanes_with_same<kDigitBits>(digit);
      const auto before = static_cast<uint32_t>(__popc(same & ((1u << lane) - 1)));
      const uint32_t counted = of_warp[digit];
      __syncwarp();
      if (before == 0) {
        of_warp[digit] = static_cast<uint16_t>(counted + static_cast<uint32_t>(__popc(same)));
      }
      __syncwarp();
      ranks[k] = counted + before;
    }
  }

  // Turns the counts of warps into the ranks at which each warp begins. Calls fn(digit, total) once
  // for each digit, with how many keys of the tile have it.
  template <typename Fn>
  __device__ __forceinline__ void join_warps(const Fn& fn) const {
    __syncthreads();
    for (uint32_t digit = threadIdx.x; digit < kDigits; digit += blockDim.x) {
      uint32_t total = 0;
      for (uint32_t warp = 0; warp < blockDim.x / kWarpSize; ++warp) {
        uint16_t& count = counts[warp * kDigits + digit];
        const uint32_t own = count;
        count = static_cast<uint16_t>(total);
        total += own;
      }
      begins[digit] = total;
      fn(digit, total);
    }
    __syncthreads();
    add_digits_before(begins);
    __syncthreads();
  }

  // Returns the rank in the tile of a key with this rank in its warp.
  __device__ __forceinline__ uint32_t rank_of(Key key, uint32_t pass, uint32_t rank) const {
    const uint32_t digit = digit_of(key, pass);
    return begins[digit] + counts[threadIdx.x / kWarpSize * kDigits + digit] + rank;
  }

  Key* keys;  // The keys and their places, in the order of the digit.
  uint32_t* places;
  uint32_t* begins;  // The rank at which each digit begins.
  uint32_t* bases;   // What a rank needs to become a rank in the line, for each digit.
  uint16_t* counts;  // (warps, digits)
};

}  // namespace bp::cuda
