// Helpers of kernels that work on rows, such as softmax, norms and losses. A group of threads,
// which is a warp or a block, shares a row. Axes give the places of rows and elements, so that any
// layout works.
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// A tensor of rows.
struct RowTensor {
  std::byte* data = nullptr;
  Axes<1> rows, elements;
  bool has_vectors = false;  // Dense rows that begin at multiples of 16 bytes.

  template <typename T>
  __host__ __device__ __forceinline__ T* row(uint32_t index) const {
    return reinterpret_cast<T*>(data) + rows.offset(index);
  }
  // Loads elements of a row from number i on: one element with any stride, or several neighbours.
  template <int kVector, typename T>
  __host__ __device__ __forceinline__ Vec<T, kVector> load(const T* row, uint32_t i) const {
    const int64_t at = kVector == 1 ? elements.offset(i) : int64_t{i};
    return *reinterpret_cast<const Vec<T, kVector>*>(row + at);
  }
  template <int kVector, typename T>
  __host__ __device__ __forceinline__ void store(T* row, uint32_t i,
                                                 const Vec<T, kVector>& values) const {
    const int64_t at = kVector == 1 ? elements.offset(i) : int64_t{i};
    *reinterpret_cast<Vec<T, kVector>*>(row + at) = values;
  }
};

constexpr uint32_t kRowThreads = 256;

// The ways in which the threads of a block share rows. Each is a struct of static functions:
//   row()               the row of this thread
//   first(), step()     its elements are first(), first() + step() and so on, in vectors
//   reduce()            joins what the threads of a row have; all threads of the block call it
struct WarpRow {
  static constexpr uint32_t kRows = kRowThreads / kWarpSize;
  static constexpr bool kHasVectors = true;
  __device__ static uint32_t row() { return blockIdx.x * kRows + threadIdx.x / kWarpSize; }
  __device__ static uint32_t first() { return threadIdx.x % kWarpSize; }
  __device__ static uint32_t step() { return kWarpSize; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op op, A) {
    return warp_reduce(value, op);
  }
};

struct BlockRow {
  static constexpr uint32_t kRows = 1;
  static constexpr bool kHasVectors = true;
  __device__ static uint32_t row() { return blockIdx.x; }
  __device__ static uint32_t first() { return threadIdx.x; }
  __device__ static uint32_t step() { return kRowThreads; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op op, A identity) {
    return block_reduce(value, op, identity);
  }
};

// 32 rows side by side, one for each lane. The warps share the elements of the rows.
struct RowsAcross {
  static constexpr uint32_t kRows = kWarpSize, kWarps = kRowThreads / kWarpSize;
  static constexpr bool kHasVectors = false;
  __device__ static uint32_t row() { return blockIdx.x * kRows + threadIdx.x % kWarpSize; }
  __device__ static uint32_t first() { return threadIdx.x / kWarpSize; }
  __device__ static uint32_t step() { return kWarps; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op op, A) {
    __shared__ A parts[kWarps][kWarpSize];
    __syncthreads();  // An earlier call may still use `parts`.
    parts[threadIdx.x / kWarpSize][threadIdx.x % kWarpSize] = value;
    __syncthreads();
    value = parts[0][threadIdx.x % kWarpSize];
    BP_UNROLL
    for (uint32_t i = 1; i < kWarps; ++i) value = op(value, parts[i][threadIdx.x % kWarpSize]);
    return value;
  }
};

template <int kCount>
using Lanes = std::integral_constant<int, kCount>;

// Calls fn(Lanes<n>, i) for the elements of this thread, n elements from number i on. n is above 1
// only with `has_vectors`. A thread gets the same elements in every call.
template <class Group, typename T, typename Fn>
__device__ __forceinline__ void walk_row(uint32_t count, bool has_vectors, const Fn& fn) {
  uint32_t i = 0;
  if constexpr (Group::kHasVectors) {
    if (has_vectors) {
      constexpr uint32_t kVector = kLanes<T>;
      const uint32_t whole = count / kVector * kVector;
      for (i = Group::first() * kVector; i < whole; i += Group::step() * kVector) {
        fn(Lanes<kLanes<T>>(), i);
      }
      i = whole;
    }
  }
  for (i += Group::first(); i < count; i += Group::step()) fn(Lanes<1>(), i);
}

// Returns the dynamic shared memory of the block.
__device__ __forceinline__ std::byte* dynamic_shared() {
#ifdef BACKPLANE_CUDA_EMULATED
  return emulation::place().shared;
#else
  extern __shared__ __align__(16) std::byte memory[];
  return memory;
#endif
}

// ---- On the host --------------------------------------------------------------------------------

// Returns a tensor of rows. The axes with a bit in `element_axes` are the elements of a row, in
// row-major order, and the other axes count rows.
RowTensor row_tensor(const bp_tensor& tensor, uint32_t element_axes);

// These functions return a tensor that has only rows, or only the elements of one row.
inline RowTensor rows_only(const bp_tensor& tensor) { return row_tensor(tensor, 0); }
inline RowTensor elements_only(const bp_tensor& tensor) {
  return row_tensor(tensor, (1u << tensor.ndim) - 1);
}

// An operand that may be absent.
struct OptionalRows {
  OptionalRows() = default;
  OptionalRows(const bp_tensor* given, uint32_t element_axes)
      : is_given(given != nullptr),
        tensor(given == nullptr ? RowTensor() : row_tensor(*given, element_axes)) {}

  bool allows_vectors() const { return !is_given || tensor.has_vectors; }

  bool is_given = false;
  RowTensor tensor;
};

struct RowExtents {
  int64_t rows = 1, count = 1;
};
RowExtents row_extents(const bp_tensor& tensor, uint32_t element_axes);

// Returns why the rows of this tensor cannot be counted in 32 bits, or NULL.
bp_reason too_many_rows(const bp_tensor& tensor, uint32_t element_axes);

// Returns the bits of the last `count` axes of a tensor of rank `ndim`.
constexpr uint32_t last_axes(uint32_t ndim, int32_t count) {
  return ((1u << ndim) - 1) & ~((1u << (ndim - static_cast<uint32_t>(count))) - 1);
}

// Returns whether neighbours lie across the rows, as for an axis that is not the last.
bool are_rows_across(const RowTensor& tensor, const RowExtents& extents);

// Calls fn(Group{}, blocks) for the group that suits rows like these.
template <typename Fn>
bp_status with_row_group(const RowTensor& tensor, const RowExtents& extents, const Fn& fn) {
  constexpr int64_t kBlockRow = 1024;  // From this many elements on, a block is faster.
  if (extents.rows == 0) return BP_OK;
  if (are_rows_across(tensor, extents)) {
    return fn(RowsAcross(), blocks_for(extents.rows, RowsAcross::kRows));
  }
  if (extents.count > kBlockRow) return fn(BlockRow(), blocks_for(extents.rows, BlockRow::kRows));
  return fn(WarpRow(), blocks_for(extents.rows, WarpRow::kRows));
}

}  // namespace bp::cuda
