// The gradients of keys and values in sdpa_backward_mma.cu: a block has 128 keys, and walks the
// rows that see them, 64 at a time.
#pragma once

#include "backends/cuda/kernels/sdpa_backward_mma.cuh"

namespace bp::cuda {

constexpr uint32_t kPairs = 4, kKeyThreads = 2 * kPairs * kWarpSize;
constexpr uint32_t kBlockKeys = kPairs * kWarpRows;
constexpr uint32_t kRowSlots = 3;  // Tiles of q: the last one, the one at hand, and the next one.

using RowTile = WarpTile<kWalkedRows>;
using RowFactor = WarpFactor<kWalkedRows>;

// The shared memory of a block of keys.
template <int kWidth>
struct KeyMemory {
  static constexpr uint32_t kKeyBytes = kBlockKeys * kRowBytes<kWidth>;
  static constexpr uint32_t kTileBytes = kWalkedRows * kRowBytes<kWidth>;
  static constexpr uint32_t kNumberBytes = kWalkedRows * sizeof(float);
  static constexpr uint32_t kWeightBytes = kPairs * kWarpSize * sizeof(RowFactor);
  static constexpr uint32_t kBytes = 2 * kKeyBytes + (kRowSlots + 2) * kTileBytes +
                                     2 * kRowSlots * kNumberBytes + 2 * kWeightBytes;

  std::byte* const begin = dynamic_shared();

  __device__ std::byte* keys() const { return begin; }
  __device__ std::byte* values() const { return begin + kKeyBytes; }
  __device__ std::byte* q(uint32_t step) const { return row_tile(step % kRowSlots); }
  __device__ std::byte* grad_y(uint32_t step) const { return row_tile(kRowSlots + step % 2); }
  __device__ float* shifts(uint32_t step) const { return numbers(step % kRowSlots); }
  __device__ float* deltas(uint32_t step) const { return numbers(kRowSlots + step % kRowSlots); }
  // The weights of a pair of warps: [i][n] of all lanes, then the next.
  __device__ Vec<uint32_t, 4>* weights(uint32_t step, uint32_t pair) const {
    std::byte* const all = row_tile(kRowSlots + 2) + 2 * kRowSlots * kNumberBytes;
    return reinterpret_cast<Vec<uint32_t, 4>*>(all + step % 2 * kWeightBytes) +
           pair * kWarpSize * sizeof(RowFactor) / 16;
  }

 private:
  __device__ std::byte* row_tile(uint32_t slot) const {
    return begin + 2 * kKeyBytes + slot * kTileBytes;
  }
  __device__ float* numbers(uint32_t slot) const {
    return reinterpret_cast<float*>(row_tile(kRowSlots + 2)) + slot * kWalkedRows;
  }
};

// A tile of rows, and the step that begins it.
struct WalkedTile {
  uint32_t first_row, step;
};

// A warp of a block of keys: its place, and the sums of one gradient.
template <typename T, int kWidth>
struct KeyWarp {
  const MmaBackwardPlan& plan;
  const uint32_t block_key, pair;
  const KeyMemory<kWidth> memory;
  float sums[2][kWidth / 8][4] = {};

  __device__ KeyWarp(const MmaBackwardPlan& its_plan)
      : plan(its_plan),
        block_key(blockIdx.x * kBlockKeys),
        pair(threadIdx.x / kWarpSize % kPairs) {}

  __device__ __forceinline__ uint32_t first_key() const { return block_key + pair * kWarpRows; }
  // Returns the place of the 32 keys or values of the warp.
  __device__ __forceinline__ MatrixAt<kWidth> left(const std::byte* tile) const {
    return {shared_address(tile) + pair * kWarpRows * kRowBytes<kWidth>, true};
  }
  __device__ __forceinline__ void add(const RowFactor& factor, const std::byte* tile) {
    add_products<T>(factor, MatrixAt<kWidth>(shared_address(tile), true), sums,
                    [](float& sum, float product, uint32_t, uint32_t) { sum += product; });
  }
  // Writes the sums, times `unit`, to a gradient of keys or values.
  __device__ __forceinline__ void store(const View4& to, float unit, uint8_t* marks) const {
    const Attention& a = plan.b.a;
    if (first_key() >= a.keys) return;
    const Problem problem(a, blockIdx.y);
    BP_UNROLL
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t key = first_key() + r * 8 + lane_row();
      if (key >= a.keys) continue;
      store_row(reinterpret_cast<T*>(to.data) + problem.key(to, key), a.width, unit, sums, r / 2,
                r % 2);
    }
    mark_tile(marks, a.keys, first_key(), sums);
  }
};

// The first warp of a pair.
template <typename T, int kWidth>
struct ValueWarp : KeyWarp<T, kWidth> {
  using KeyWarp<T, kWidth>::KeyWarp;

  __device__ __forceinline__ void begin(const WalkedTile& tile, bool covers) {
    RowTile scores;
    multiply_rows<T>(this->left(this->memory.keys()),
                     MatrixAt<kWidth>(shared_address(this->memory.q(tile.step)), false), scores);
    if (!covers) hide_from_rows(this->plan.b.a, tile.first_row, this->first_key(), scores);
    const float* const shifts = this->memory.shifts(tile.step) + lane_column();
    weigh(
        this->plan.slope, [&](uint32_t, uint32_t n, uint32_t e) { return shifts[n * 8 + e % 2]; },
        scores);
    RowFactor weights;
    round_tile<T>(scores, weights);
    Vec<uint32_t, 4>* const to = this->memory.weights(tile.step, this->pair) + tile_lane();
    BP_UNROLL
    for (uint32_t i = 0; i < kWalkedRows / 8; ++i) {
      const uint32_t(&from)[4] = weights.at[i / (kWalkedRows / 16)][i % (kWalkedRows / 16)];
      to[i * kWarpSize] = {{from[0], from[1], from[2], from[3]}};
    }
    if (this->plan.b.grad_v.data != nullptr) this->add(weights, this->memory.grad_y(tile.step));
  }
  __device__ __forceinline__ void end(const WalkedTile&) {}
  __device__ __forceinline__ void store_sums() const {
    if (this->plan.b.grad_v.data == nullptr) return;
    this->store(this->plan.b.grad_v, kWeightUnit<T>, this->plan.grad_v_marks);
  }
};

// The second warp of a pair. Between begin() and end() of a tile lies a barrier.
template <typename T, int kWidth>
struct GradientWarp : KeyWarp<T, kWidth> {
  using KeyWarp<T, kWidth>::KeyWarp;
  RowTile gradients;
  GradientScale<T> scale;

  __device__ __forceinline__ void begin(const WalkedTile& tile, bool) {
    if (this->plan.b.grad_k.data == nullptr) return;
    gradients = {};
    multiply_rows<T>(this->left(this->memory.values()),
                     MatrixAt<kWidth>(shared_address(this->memory.grad_y(tile.step)), false),
                     gradients);
  }
  __device__ __forceinline__ void end(const WalkedTile& tile) {
    if (this->plan.b.grad_k.data == nullptr) return;
    const Vec<uint32_t, 4>* const from = this->memory.weights(tile.step, this->pair) + tile_lane();
    const float* const deltas = this->memory.deltas(tile.step) + lane_column();
    constexpr uint32_t kCount = kWalkedRows / 16;
    BP_UNROLL
    for (uint32_t n = 0; n < kCount; ++n) {
      __syncwarp();  // Else all weights are loaded at once, and the registers do not suffice.
      BP_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        finish_gradients<T>(
            from[(i * kCount + n) * kWarpSize].at,
            [&](uint32_t, uint32_t column, uint32_t e) { return deltas[column * 8 + e % 2]; }, i, n,
            gradients);
      }
    }
    RowFactor factor;
    scale.apply(gradients, this->sums);
    round_tile<T>(gradients, factor);
    this->add(factor, this->memory.q(tile.step));
  }
  __device__ __forceinline__ void store_sums() const {
    if (this->plan.b.grad_k.data == nullptr) return;
    this->store(this->plan.b.grad_k, static_cast<float>(this->plan.b.a.scale) * scale.unit(),
                this->plan.grad_k_marks);
  }
};

// Begins to copy a tile of rows, and its numbers.
template <typename T, int kWidth>
__device__ __forceinline__ void copy_row_tile(const MmaBackwardPlan& plan, const Problem& problem,
                                              const KeyMemory<kWidth>& memory,
                                              const WalkedTile& tile) {
  const Attention& a = plan.b.a;
  copy_rows<kWidth, kWalkedRows, kKeyThreads, T>(shared_address(memory.q(tile.step)), a, problem,
                                                 a.q, tile.first_row);
  copy_rows<kWidth, kWalkedRows, kKeyThreads, T>(shared_address(memory.grad_y(tile.step)), a,
                                                 problem, plan.b.grad_y, tile.first_row);
  constexpr uint32_t kCopies = kWalkedRows / 4;  // Of 4 numbers each.
  if (threadIdx.x >= 2 * kCopies) return;
  const uint32_t i = threadIdx.x % kCopies * 4;
  const float* const from = threadIdx.x < kCopies ? plan.shifts : plan.deltas;
  float* const to = threadIdx.x < kCopies ? memory.shifts(tile.step) : memory.deltas(tile.step);
  const uint64_t place = uint64_t{blockIdx.y} * plan.stride + tile.first_row + i;
  copy_async(shared_address(to + i), from + place, true);
}

// Walks the tiles of rows that see a key of the block.
template <typename T, int kWidth, class Warp>
__device__ __forceinline__ void walk_rows(const MmaBackwardPlan& plan, const Problem& problem,
                                          Warp& warp) {
  const Attention& a = plan.b.a;
  const auto rows = static_cast<uint32_t>(a.rows);
  const auto is_met = [&](uint32_t row) {
    return SeenKeys(a, row, kWalkedRows).meet(warp.block_key, kBlockKeys);
  };
  const auto next_met = [&](uint32_t row) {
    while (row < rows && !is_met(row)) row += kWalkedRows;
    return row;
  };
  WalkedTile before{rows, 0}, now{next_met(0), 0};
  if (now.first_row < rows) copy_row_tile<T>(plan, problem, warp.memory, now);
  commit_copies();
  while (now.first_row < rows || before.first_row < rows) {
    // The copies of this step arrive, and behind the barrier also those of the other threads. All
    // warps have ended the step before, whose memory the next copies take.
    wait_for_copies<0>();
    wait_for_block();
    if (before.first_row < rows) warp.end(before);
    WalkedTile next{rows, now.step + 1};
    if (now.first_row < rows) next.first_row = next_met(now.first_row + kWalkedRows);
    if (next.first_row < rows) copy_row_tile<T>(plan, problem, warp.memory, next);
    commit_copies();
    if (now.first_row < rows) {
      const SeenKeys seen(a, now.first_row, kWalkedRows);
      warp.begin(now, seen.cover(warp.block_key, kBlockKeys));
    }
    before = now;
    now = next;
  }
  wait_for_copies<0>();  // Those of the keys too, if no row sees them.
  warp.store_sums();
}

// The grid has (tiles of keys, problems) blocks. By causal attention most rows see the first ones.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kKeyThreads, 1) key_gradients_kernel(MmaBackwardPlan plan) {
  const Attention& a = plan.b.a;
  const Problem problem(a, blockIdx.y);
  const KeyMemory<kWidth> memory;
  const uint32_t first_key = blockIdx.x * kBlockKeys;
  const auto copy = [&](const View4& view, std::byte* to) {
    copy_keys<kWidth, kBlockKeys, kKeyThreads, T>(shared_address(to), a, problem, view, first_key);
  };
  copy(a.k, memory.keys());
  copy(a.v, memory.values());
  if (threadIdx.x < kPairs * kWarpSize) {
    ValueWarp<T, kWidth> warp(plan);
    walk_rows<T, kWidth>(plan, problem, warp);
  } else {
    GradientWarp<T, kWidth> warp(plan);
    walk_rows<T, kWidth>(plan, problem, warp);
  }
}

}  // namespace bp::cuda
