// Helpers of kernels that work on rows, such as softmax, norms and losses. A group of threads,
// which is a warp or a block, shares a row. Axes give the places of rows and elements, so that any
// layout works.
//
// If there are few long rows, blocks share a row, since one block reads only about 15 GB/s of an
// H200's memory. The kernel is then launched once for each of its reductions, and once more: see
// RowSteps. The results are joined in an order that depends on the extents alone.
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

// The elements of a row that the group of this thread has.
struct RowSpan {
  uint32_t begin, end;
};

// The ways in which the threads of a block share rows. Each is a struct of static functions:
//   row()               the row of this thread
//   span()              the elements of the group, of a row of `count` elements
//   first(), step()     the thread has number first() of them, first() + step() and so on, in
//                       vectors
//   leads()             whether this is the first thread of the row
//   reduce()            joins what the threads of a row have; all threads of the block call it
struct WholeRow {
  static constexpr bool kIsCut = false;
  __device__ static RowSpan span(uint32_t count) { return {0, count}; }
};

struct WarpRow : WholeRow {
  static constexpr uint32_t kRows = kRowThreads / kWarpSize;
  static constexpr bool kHasVectors = true;
  __device__ static uint32_t row() { return blockIdx.x * kRows + threadIdx.x / kWarpSize; }
  __device__ static uint32_t first() { return threadIdx.x % kWarpSize; }
  __device__ static uint32_t step() { return kWarpSize; }
  __device__ static bool leads() { return first() == 0; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op op, A) {
    return warp_reduce(value, op);
  }
};

struct BlockRow : WholeRow {
  static constexpr uint32_t kRows = 1;
  static constexpr bool kHasVectors = true;
  __device__ static uint32_t row() { return blockIdx.x; }
  __device__ static uint32_t first() { return threadIdx.x; }
  __device__ static uint32_t step() { return kRowThreads; }
  __device__ static bool leads() { return first() == 0; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op op, A identity) {
    return block_reduce(value, op, identity);
  }
};

// 32 rows side by side, one for each lane. The warps share the elements of the rows.
struct RowsAcross : WholeRow {
  static constexpr uint32_t kRows = kWarpSize, kWarps = kRowThreads / kWarpSize;
  static constexpr bool kHasVectors = false;
  __device__ static uint32_t row() { return blockIdx.x * kRows + threadIdx.x % kWarpSize; }
  __device__ static uint32_t first() { return threadIdx.x / kWarpSize; }
  __device__ static uint32_t step() { return kWarps; }
  __device__ static bool leads() { return first() == 0; }
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

// One of the segments of rows that gridDim.y blocks share.
template <class Group>
struct RowSegment : Group {
  static constexpr bool kIsCut = true;
  __device__ static RowSpan span(uint32_t count) {
    constexpr uint32_t kUnit = 16;  // A segment begins at a whole vector of every dtype.
    const uint32_t length = ((count + gridDim.y - 1) / gridDim.y + kUnit - 1) / kUnit * kUnit;
    const uint32_t begin = blockIdx.y * length, left = count - begin;
    if (begin >= count) return {count, count};
    return {begin, left < length ? count : begin + length};
  }
  __device__ static bool leads() { return blockIdx.y == 0 && Group::first() == 0; }
};

// How rows are cut. Launch number `step` of the kernel ends at its reduction number `step`. Each
// segment of a row leaves its part of the result in memory, where later launches join the parts.
struct RowCut {
  std::byte* parts = nullptr;  // (reductions, segments, rows), units of kPartBytes.
  uint32_t step = 0;
};
constexpr size_t kPartBytes = 16;

// The reductions of the row of this thread, in order. After each of them, the kernel has to return
// if is_over(). All threads of a block call the functions.
template <class Group>
class RowSteps {
 public:
  __device__ RowSteps(const RowCut& cut, uint32_t rows) : cut_(cut), rows_(rows) {}

  __device__ __forceinline__ bool is_over() const { return Group::kIsCut && number_ > cut_.step; }

  // Joins what own() gives to the threads of the row.
  template <typename A, class Op, typename Fn>
  __device__ __forceinline__ A reduce(const Op& op, A identity, const Fn& own) {
    if constexpr (!Group::kIsCut) {
      return Group::reduce(own(), op, identity);
    } else {
      const uint32_t number = number_++;
      if (number < cut_.step) return join(number, op, identity);
      const A value = Group::reduce(own(), op, identity);
      if (Group::row() < rows_ && Group::first() == 0) *part<A>(number, blockIdx.y) = value;
      return value;
    }
  }

 private:
  // Joins the parts of all segments.
  template <typename A, class Op>
  __device__ __forceinline__ A join(uint32_t number, const Op& op, A identity) const {
    A value = identity;
    if (Group::row() < rows_) {
      for (uint32_t i = Group::first(); i < gridDim.y; i += Group::step()) {
        value = op(value, *part<A>(number, i));
      }
    }
    return Group::reduce(value, op, identity);
  }
  template <typename A>
  __device__ A* part(uint32_t number, uint32_t segment) const {
    static_assert(sizeof(A) <= kPartBytes);
    const uint64_t at = (uint64_t{number} * gridDim.y + segment) * rows_ + Group::row();
    return reinterpret_cast<A*>(cut_.parts + at * kPartBytes);
  }

  const RowCut& cut_;
  const uint32_t rows_;
  uint32_t number_ = 0;
};

template <int kCount>
using Lanes = std::integral_constant<int, kCount>;

// Calls fn(Lanes<n>, i) for the elements of this thread, n elements from number i on. n is above 1
// only with `has_vectors`. A thread gets the same elements in every call.
template <class Group, typename T, typename Fn>
__device__ __forceinline__ void walk_row(uint32_t count, bool has_vectors, const Fn& fn) {
  const RowSpan span = Group::span(count);
  uint32_t i = span.begin;
  if constexpr (Group::kHasVectors) {
    if (has_vectors) {
      constexpr uint32_t kVector = kLanes<T>;
      const uint32_t whole = span.begin + (span.end - span.begin) / kVector * kVector;
      for (i += Group::first() * kVector; i < whole; i += Group::step() * kVector) {
        fn(Lanes<kLanes<T>>(), i);
      }
      i = whole;
    }
  }
  for (i += Group::first(); i < span.end; i += Group::step()) fn(Lanes<1>(), i);
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

// Returns how many blocks share a row. It is above 1 if there are few long rows.
uint32_t row_segments(const RowTensor& tensor, const RowExtents& extents);

// Returns the workspace of run_rows().
uint64_t row_parts_bytes(const RowTensor& tensor, const RowExtents& extents, uint32_t reductions);

// Calls fn(Group(), blocks, plan) for the group that suits rows like these. If rows are cut, it
// does so once more than the kernel has reductions, for each value of plan.cut.step.
template <class Plan, typename Fn>
bp_status run_rows(const RowTensor& tensor, const RowExtents& extents, uint32_t reductions,
                   Plan plan, const Fn& fn) {
  constexpr int64_t kBlockRow = 1024;  // From this many elements on, a block is faster.
  if (extents.rows == 0) return BP_OK;
  const bool are_across = are_rows_across(tensor, extents);
  const unsigned across_blocks = blocks_for(extents.rows, RowsAcross::kRows);
  const unsigned row_blocks = blocks_for(extents.rows, BlockRow::kRows);
  const uint32_t segments = row_segments(tensor, extents);
  if (segments == 1) {
    if (are_across) return fn(RowsAcross(), dim3(across_blocks), plan);
    if (extents.count > kBlockRow) return fn(BlockRow(), dim3(row_blocks), plan);
    return fn(WarpRow(), dim3(blocks_for(extents.rows, WarpRow::kRows)), plan);
  }
  for (plan.cut.step = 0; plan.cut.step <= reductions; ++plan.cut.step) {
    const bp_status status = are_across
                                 ? fn(RowSegment<RowsAcross>(), dim3(across_blocks, segments), plan)
                                 : fn(RowSegment<BlockRow>(), dim3(row_blocks, segments), plan);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

}  // namespace bp::cuda
