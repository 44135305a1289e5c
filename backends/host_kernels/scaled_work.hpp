// The parts of a launch of run_scaled_rows(), and its workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/scaled_product.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {

constexpr int64_t kRowsAtOnce = 4, kColsAtOnce = 16;
constexpr int64_t kMostChunk = 256;  // The elements of the largest chunk.
constexpr int64_t kMostLanes = 16;
constexpr int64_t kFewestPerLane = 4;

// What belongs to a row of a: its scale, and, if its elements are integers, its zero point and the
// sum of its elements.
struct RowFactors {
  float scale = 1;
  int32_t zero = 0;
  int64_t sum = 0;
};

// The workspace of run_scaled_rows().
struct ScaledLayout {
  int64_t row_bytes = 0;  // An arranged row of a, filled with zeros.
  int64_t row_lanes = 0;  // The sums of its lanes, if a has integers.
  int64_t numbers = 0;    // The scales, or the zero points, of one column.
  uint64_t sums_offset = 0, factors_offset = 0, numbers_offset = 0, size_bytes = 0;
};

inline ScaledLayout scaled_layout(const ScaledProduct& p, int thread_count) {
  ScaledLayout layout;
  const int64_t depth = round_up(p.depth, kMostChunk);
  layout.row_bytes = p.is_integer ? depth : depth * static_cast<int64_t>(sizeof(float));
  layout.row_lanes = p.is_integer ? depth / kFewestPerLane : 0;
  layout.numbers = p.depth / p.block + kMostLanes;
  const auto reserve = [&](int64_t size_bytes) {
    return reserve_bytes(static_cast<uint64_t>(size_bytes), layout.size_bytes);
  };
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  const int64_t rows = p.rows + (p.has_zero_of_a ? 1 : 0);  // The last one consists of ones.
  reserve(rows * layout.row_bytes);
  layout.sums_offset = reserve(rows * layout.row_lanes * kFloatBytes);
  layout.factors_offset = reserve(p.rows * static_cast<int64_t>(sizeof(RowFactors)));
  layout.numbers_offset = reserve(thread_count * 2 * kColsAtOnce * layout.numbers * kFloatBytes);
  return layout;
}

// The scales and zero points of a row of codes, one for each block. They can be read beyond the
// last block, for a whole vector.
struct BlockNumbers {
  const float *scales, *zeros;
};

// What belongs to the columns of y, where oneDNN computes the sums. They can be read beyond the
// last column, for a whole vector.
struct ColumnNumbers {
  float* scales;
  int32_t* zeros = nullptr;
  int32_t* sums = nullptr;  // The sums of b less its zero points; NULL if a has no zero points.
};

// Rows of a from `row` on, and the row of codes with which they are multiplied.
struct ScaledFactors {
  int64_t row;
  const std::byte* codes;
  BlockNumbers blocks;
};

// Returns the offset of the first element of row `row` of a view, whose rows lie along its last
// axis.
inline int64_t row_offset(const View& view, int64_t row, int64_t* index) {
  int64_t offset = 0;
  for (uint32_t axis = view.ndim - 1; axis-- > 0; row /= view.shape[axis]) {
    index[axis] = row % view.shape[axis];
    offset += index[axis] * view.strides[axis];
  }
  return offset;
}

// What every part of a launch works on, with its places in the workspace.
struct ScaledWork {
  ScaledWork(const ScaledProduct& its_product, std::byte* workspace, int thread_count)
      : product(its_product),
        layout(scaled_layout(its_product, thread_count)),
        arranged(workspace) {
    sums = reinterpret_cast<float*>(workspace + layout.sums_offset);
    factors = reinterpret_cast<RowFactors*>(workspace + layout.factors_offset);
    numbers = reinterpret_cast<float*>(workspace + layout.numbers_offset);
  }

  // A row of ones behind the rows of a, and the sums of its lanes, if a has zero points.
  const int8_t* ones() const {
    return reinterpret_cast<const int8_t*>(arranged) + product.rows * layout.row_bytes;
  }
  const float* sums_of_ones() const { return sums + product.rows * layout.row_lanes; }

  const ScaledProduct& product;
  ScaledLayout layout;
  std::byte* arranged;
  RowFactors* factors;
  float *sums, *numbers;
};

}  // namespace bp::kernels
