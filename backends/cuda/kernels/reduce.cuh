// Reductions over any axes. y[kept] combines the elements of x at all reduced indices.
//
//   along    the reduced elements of one output are neighbours: a warp or a block takes an output
//   across   the outputs are neighbours: a warp takes 32 of them, or 32 vectors of 16 bytes, and 8
//            warps share the elements
//
// The limit is memory: a sum of f32 over 16384 x 4096 reads 268 MB, which an H200 does in 62 us at
// the 4.3 TB/s of its copies. A sum along either axis should take 70 us, with the second stage.
//
// Long reductions are cut into chunks, whose results lie in the workspace and are then combined in
// order. The cut depends on the extents alone, so equal input gives equal bits.
//
// An op is a struct:
//   Acc                     what is accumulated in
//   identity()              static; with which each sum begins
//   take(acc, x, i)         adds x, reduced element number i
//   combine(a, b)           static; joins two results, in either order
//   write(acc, result, at)  finishes an output, and stores it as element `at` of y
// One that has members has also
//   for_output(result, i)   static; the op of output number i
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// What the last step of an output needs besides the sum.
struct ReduceResult {
  std::byte* y = nullptr;
  uint32_t kind = 0;       // The kind of elements of y, if the op needs it.
  int64_t count = 0;       // The reduced elements of each output.
  void* shifts = nullptr;  // The shifts of outputs, if the op has shifts.
};

// Stores element `at` of a y of numbers, whose dtype is known at run time alone. The host has
// refused all other dtypes.
template <typename Acc>
__device__ void store_number(std::byte* y, uint32_t dtype, int64_t at, Acc value) {
  const auto store = [&]<typename T>(T) { reinterpret_cast<T*>(y)[at] = narrow<T>(value); };
  if (dtype == BP_F16) store(Float16{});
  if (dtype == BP_BF16) store(BFloat16{});
  if (dtype == BP_F32) store(float{});
  if (dtype == BP_F64) store(double{});
  if (dtype == BP_I32) store(int32_t{});
  if (dtype == BP_I64) store(int64_t{});
}

// One launch of the first stage. The operands of `kept` are y and x, and the operand of `reduced`
// is x.
struct ReducePlan {
  const std::byte* x = nullptr;
  Axes<2> kept;
  Axes<1> reduced;
  uint32_t outputs = 0, count = 0;  // `count` reduced elements for each output,
  uint32_t chunk = 0;               // this many of them for each block.
  int64_t first = 0;                // The number of the first.
  bool has_vectors = false;
  void* parts = nullptr;  // NULL: outputs are finished here. Else (chunks, all outputs),
  int64_t part_outputs = 0, first_part = 0, first_output = 0;
  ReduceResult result;
};

// Returns the op of an output. Threads behind the last output get the op of the last one.
template <class Op, class Plan>
__device__ __forceinline__ Op op_of(const Plan& plan, uint32_t output) {
  if constexpr (std::is_empty_v<Op>) {
    return Op();
  } else {
    const uint32_t place = output < plan.outputs ? output : plan.outputs - 1;
    return Op::for_output(plan.result, plan.first_output + place);
  }
}

template <class Op>
__device__ __forceinline__ void put_result(const ReducePlan& plan, const Op& op, uint32_t output,
                                           typename Op::Acc value) {
  if (plan.parts == nullptr) {
    int64_t at[2];
    plan.kept.locate(output, at);
    op.write(value, plan.result, at[0]);
    return;
  }
  auto* const parts = static_cast<typename Op::Acc*>(plan.parts);
  const int64_t part = plan.first_part + blockIdx.y;
  parts[part * plan.part_outputs + plan.first_output + output] = value;
}

constexpr int kReduceThreads = 256;
constexpr uint32_t kLoads = 4;  // Loads of a thread that are under way at a time.

// kWidth threads share an output: 32, or all of the block.
template <class Op, typename X, int kWidth>
__global__ void __launch_bounds__(kReduceThreads) reduce_along_kernel(ReducePlan plan) {
  using Acc = typename Op::Acc;
  constexpr uint32_t kRows = kReduceThreads / kWidth;
  constexpr uint32_t kVector = kLanes<X>, kLevels = std::bit_width(kVector) - 1;
  const uint32_t output = blockIdx.x * kRows + threadIdx.x / kWidth;
  const uint32_t lane = threadIdx.x % kWidth;
  const uint32_t begin = blockIdx.y * plan.chunk;
  const uint32_t end = plan.count - begin < plan.chunk ? plan.count : begin + plan.chunk;
  const Op op = op_of<Op>(plan, output);
  Acc acc = Op::identity();
  if (output < plan.outputs) {
    int64_t at[2];
    plan.kept.locate(output, at);
    const X* const x = reinterpret_cast<const X*>(plan.x) + at[1];
    uint32_t i = begin;
    if (plan.has_vectors) {
      // Each element of a vector has its own sum, so that additions do not wait for each other.
      Acc sums[kVector];
      BP_UNROLL
      for (uint32_t k = 0; k < kVector; ++k) sums[k] = Op::identity();
      const uint32_t whole = begin + (end - begin) / kVector * kVector;
      constexpr uint32_t kStep = kWidth * kVector;
      const auto take = [&](const Vec<X, kVector>& values, uint32_t first) {
        BP_UNROLL
        for (uint32_t k = 0; k < kVector; ++k) {
          sums[k] = op.take(sums[k], values.at[k], plan.first + first + k);
        }
      };
      // Several loads are under way at a time: one 16-byte load of each thread does not fill the
      // memory of a large device.
      i = begin + lane * kVector;
      for (; i < whole && whole - i > (kLoads - 1) * kStep; i += kLoads * kStep) {
        Vec<X, kVector> values[kLoads];
        BP_UNROLL
        for (uint32_t n = 0; n < kLoads; ++n) {
          values[n] = *reinterpret_cast<const Vec<X, kVector>*>(x + i + n * kStep);
        }
        BP_UNROLL
        for (uint32_t n = 0; n < kLoads; ++n) take(values[n], i + n * kStep);
      }
      for (; i < whole; i += kStep) take(*reinterpret_cast<const Vec<X, kVector>*>(x + i), i);
      // The compiler unrolls loops over 16 sums only if their counts are constants. Else the sums
      // are kept in local memory.
      BP_UNROLL
      for (uint32_t level = 1; level <= kLevels; ++level) {
        BP_UNROLL
        for (uint32_t k = 0; k < kVector / 2; ++k) {
          if (k < kVector >> level) sums[k] = Op::combine(sums[k], sums[k + (kVector >> level)]);
        }
      }
      acc = sums[0];
      i = whole;
    }
    for (i += lane; i < end; i += kWidth) {
      acc = op.take(acc, x[plan.reduced.offset(i)], plan.first + i);
    }
  }
  const auto combine = [](Acc a, Acc b) { return Op::combine(a, b); };
  if constexpr (kWidth == kWarpSize) {
    acc = warp_reduce(acc, combine);
  } else {
    acc = block_reduce(acc, combine, Op::identity());
  }
  if (lane == 0 && output < plan.outputs) put_result(plan, op, output, acc);
}

constexpr uint32_t kAcrossRows = kReduceThreads / kWarpSize;

// The outputs of a lane of reduce_across_kernel(), if they are neighbours. Large accumulators of
// several outputs do not fit in registers.
constexpr int64_t kMostAcrossLanes = 8;
template <class Op, typename X>
inline constexpr int kAcrossLanes = sizeof(typename Op::Acc) > 8   ? 1
                                    : kLanes<X> < kMostAcrossLanes ? kLanes<X>
                                                                   : kMostAcrossLanes;

// A lane has kVector neighbouring outputs, which it loads at once. 8 warps share the elements.
template <class Op, typename X, int kVector>
__global__ void __launch_bounds__(kReduceThreads) reduce_across_kernel(ReducePlan plan) {
  using Acc = typename Op::Acc;
  // Several loads of a thread are under way at a time. There are several sums of each output, so
  // that additions do not wait for each other.
  constexpr uint32_t kRows = kVector == 1 ? 8 : 4, kOutputs = kWarpSize * kVector;
  constexpr uint32_t kSums = kVector == 1 ? 8 : sizeof(Acc) * kVector <= 32 ? 4 : 2;
  __shared__ Acc parts[kAcrossRows][kOutputs];
  const uint32_t lane = threadIdx.x % kWarpSize, row = threadIdx.x / kWarpSize;
  const uint32_t first = blockIdx.x * kOutputs, output = first + lane * kVector;
  const uint32_t begin = blockIdx.y * plan.chunk;
  const uint32_t end = plan.count - begin < plan.chunk ? plan.count : begin + plan.chunk;
  if (output < plan.outputs) {
    int64_t at[2];
    plan.kept.locate(output, at);
    const X* const x = reinterpret_cast<const X*>(plan.x) + at[1];
    Op ops[kVector];
    Acc sums[kSums][kVector];
    BP_UNROLL
    for (int k = 0; k < kVector; ++k) {
      ops[k] = op_of<Op>(plan, output + k);
      BP_UNROLL
      for (uint32_t n = 0; n < kSums; ++n) sums[n][k] = Op::identity();
    }
    const auto load = [&](uint32_t i) {
      return *reinterpret_cast<const Vec<X, kVector>*>(x + plan.reduced.offset(i));
    };
    const auto take = [&](Acc(&to)[kVector], const Vec<X, kVector>& values, uint32_t i) {
      BP_UNROLL
      for (int k = 0; k < kVector; ++k) {
        to[k] = ops[k].take(to[k], values.at[k], plan.first + i);
      }
    };
    uint32_t i = begin + row;
    for (; i + (kRows - 1) * kAcrossRows < end; i += kRows * kAcrossRows) {
      Vec<X, kVector> values[kRows];
      BP_UNROLL
      for (uint32_t n = 0; n < kRows; ++n) values[n] = load(i + n * kAcrossRows);
      BP_UNROLL
      for (uint32_t n = 0; n < kRows; ++n) take(sums[n % kSums], values[n], i + n * kAcrossRows);
    }
    for (; i < end; i += kAcrossRows) take(sums[0], load(i), i);
    BP_UNROLL
    for (int k = 0; k < kVector; ++k) {
      BP_UNROLL
      for (uint32_t step = kSums / 2; step > 0; step /= 2) {
        BP_UNROLL
        for (uint32_t n = 0; n < step; ++n) {
          sums[n][k] = Op::combine(sums[n][k], sums[n + step][k]);
        }
      }
      parts[row][lane * kVector + k] = sums[0][k];
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kOutputs && first + i < plan.outputs; i += kReduceThreads) {
    Acc acc = parts[0][i];
    BP_UNROLL
    for (uint32_t n = 1; n < kAcrossRows; ++n) acc = Op::combine(acc, parts[n][i]);
    put_result(plan, op_of<Op>(plan, first + i), first + i, acc);
  }
}

// The second stage combines the parts of each output in order.
struct CombinePlan {
  const void* parts = nullptr;
  int64_t part_count = 0, part_outputs = 0, first_output = 0;
  Axes<2> kept;
  uint32_t outputs = 0;
  ReduceResult result;
};

// A lane has an output, and 8 warps share its parts.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads) combine_parts_kernel(CombinePlan plan) {
  using Acc = typename Op::Acc;
  __shared__ Acc sums[kAcrossRows][kWarpSize];
  const uint32_t lane = threadIdx.x % kWarpSize, row = threadIdx.x / kWarpSize;
  const uint32_t output = blockIdx.x * kWarpSize + lane;
  Acc acc = Op::identity();
  if (output < plan.outputs) {
    const Acc* const parts = static_cast<const Acc*>(plan.parts) + plan.first_output + output;
    for (int64_t i = row; i < plan.part_count; i += kAcrossRows) {
      acc = Op::combine(acc, parts[i * plan.part_outputs]);
    }
  }
  sums[row][lane] = acc;
  __syncthreads();
  if (row != 0 || output >= plan.outputs) return;
  BP_UNROLL
  for (uint32_t n = 1; n < kAcrossRows; ++n) acc = Op::combine(acc, sums[n][lane]);
  int64_t at[2];
  plan.kept.locate(output, at);
  op_of<Op>(plan, output).write(acc, plan.result, at[0]);
}

// Combines the parts of few outputs: a block takes one, because a thread alone would wait for the
// memory at each of very many parts.
constexpr uint32_t kFewOutputs = 64;

template <class Op>
__global__ void __launch_bounds__(kReduceThreads) combine_few_kernel(CombinePlan plan) {
  using Acc = typename Op::Acc;
  const uint32_t output = blockIdx.x;
  const Acc* const parts = static_cast<const Acc*>(plan.parts) + plan.first_output + output;
  Acc acc = Op::identity();
  for (int64_t i = threadIdx.x; i < plan.part_count; i += kReduceThreads) {
    acc = Op::combine(acc, parts[i * plan.part_outputs]);
  }
  acc = block_reduce(
      acc, [](Acc a, Acc b) { return Op::combine(a, b); }, Op::identity());
  if (threadIdx.x != 0) return;
  int64_t at[2];
  plan.kept.locate(output, at);
  op_of<Op>(plan, output).write(acc, plan.result, at[0]);
}

// ---- On the host --------------------------------------------------------------------------------

// How a reduction is cut.
struct Reduction {
  // `axes` has a bit for each axis that is reduced. y has those with extent 1, or lacks them.
  Reduction(const bp_tensor& x, const bp_tensor& y, uint32_t axes, bool keeps_axes);
  // Takes the loops themselves, whose operands have addresses.
  Reduction(const Loop& kept_axes, const Loop& reduced_axes);

  int64_t count() const { return reduced.count; }
  int64_t outputs() const { return kept.count; }
  uint64_t parts_size_bytes(size_t acc_size_bytes) const {
    return part_count == 1 ? 0 : static_cast<uint64_t>(part_count * kept.count) * acc_size_bytes;
  }

  Loop kept, reduced;  // Operands (y, x), and x.
  bool is_across = false;
  int64_t chunk = 0, part_count = 1;
  std::vector<Loop> reduced_parts;  // Never empty.

 private:
  void cut();
};

uint32_t axis_bits(uint64_t count, const int64_t* axes);

// What a reduction launches: one stage over x, and one that combines parts. There are hundreds of
// reductions, so what does not depend on the op is compiled once (submit_reduction).
struct ReduceLaunchers {
  bp_status (*stage)(Launch&, const Reduction&, const ReducePlan&);
  bp_status (*combine)(Launch&, const CombinePlan&);
  int lanes;         // The elements of 16 bytes.
  int across_lanes;  // The neighbouring outputs of a thread.
};

bp_status submit_reduction(Launch& launch, const Reduction& r, const ReduceResult& result,
                           const ReduceLaunchers& launchers);

template <class Op, typename X>
bp_status launch_reduce_stage(Launch& launch, const Reduction& r, const ReducePlan& plan) {
  const auto chunks = static_cast<unsigned>(
      std::max<int64_t>(1, (int64_t{plan.count} + plan.chunk - 1) / plan.chunk));
  if (r.is_across && plan.has_vectors) {
    constexpr int kVector = kAcrossLanes<Op, X>;
    return run<reduce_across_kernel<Op, X, kVector>>(
        launch, dim3(blocks_for(plan.outputs, kWarpSize * kVector), chunks), kReduceThreads, 0,
        plan);
  }
  if (r.is_across) {
    return run<reduce_across_kernel<Op, X, 1>>(
        launch, dim3(blocks_for(plan.outputs, kWarpSize), chunks), kReduceThreads, 0, plan);
  }
  if (std::min(plan.chunk, plan.count) <= 1024) {
    const unsigned blocks = blocks_for(plan.outputs, kReduceThreads / kWarpSize);
    return run<reduce_along_kernel<Op, X, kWarpSize>>(launch, dim3(blocks, chunks), kReduceThreads,
                                                      0, plan);
  }
  return run<reduce_along_kernel<Op, X, kReduceThreads>>(launch, dim3(plan.outputs, chunks),
                                                         kReduceThreads, 0, plan);
}

template <class Op>
bp_status launch_combining(Launch& launch, const CombinePlan& plan) {
  if (plan.outputs <= kFewOutputs) {
    return run<combine_few_kernel<Op>>(launch, plan.outputs, kReduceThreads, 0, plan);
  }
  return run<combine_parts_kernel<Op>>(launch, blocks_for(plan.outputs, kWarpSize), kReduceThreads,
                                       0, plan);
}

template <class Op, typename X>
bp_status submit_reduce(Launch& launch, const Reduction& r, const ReduceResult& result) {
  constexpr ReduceLaunchers kLaunchers = {launch_reduce_stage<Op, X>, launch_combining<Op>,
                                          kLanes<X>, kAcrossLanes<Op, X>};
  return submit_reduction(launch, r, result, kLaunchers);
}

}  // namespace bp::cuda
