#include <cstdlib>

#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

// Returns the axes that `bits` chooses, the innermost first, with neighbours merged.
Axes<1> axes_of(const bp_tensor& t, uint32_t bits) {
  Axes<1> axes;
  int64_t extents[kMaxRank];
  for (uint32_t i = t.ndim; i-- > 0;) {
    if ((bits >> i & 1) == 0 || t.shape[i] == 1) continue;
    const int last = axes.rank - 1;
    if (last >= 0 && t.strides[i] == axes.strides[0][last] * extents[last]) {
      extents[last] *= t.shape[i];
    } else {
      extents[axes.rank] = t.shape[i];
      axes.strides[0][axes.rank++] = t.strides[i];
    }
  }
  for (int i = 0; i < axes.rank; ++i) axes.extents[i] = Divider(static_cast<uint32_t>(extents[i]));
  if (axes.rank == 0) axes.rank = 1;
  return axes;
}

}  // namespace

RowTensor row_tensor(const bp_tensor& tensor, uint32_t element_axes) {
  RowTensor result;
  if (element_count(tensor) == 0) return result;
  result.data = data<std::byte>(tensor);
  result.rows = axes_of(tensor, ~element_axes);
  result.elements = axes_of(tensor, element_axes);
  const int64_t lanes = 16 / dtype_size_bytes(tensor.dtype);
  result.has_vectors = result.elements.rank == 1 && result.elements.strides[0][0] == 1 &&
                       reinterpret_cast<uintptr_t>(result.data) % 16 == 0;
  for (int i = 0; i < result.rows.rank; ++i) {
    result.has_vectors = result.has_vectors && result.rows.strides[0][i] % lanes == 0;
  }
  return result;
}

RowExtents row_extents(const bp_tensor& tensor, uint32_t element_axes) {
  RowExtents extents;
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    ((element_axes >> i & 1) != 0 ? extents.count : extents.rows) *= tensor.shape[i];
  }
  return extents;
}

bool are_rows_across(const RowTensor& tensor, const RowExtents& extents) {
  if (extents.rows < kWarpSize / 2) return false;
  const int64_t along = std::abs(tensor.elements.strides[0][0]);
  const int64_t across = std::abs(tensor.rows.strides[0][0]);
  return tensor.elements.rank == 1 && along > 1 && across != 0 && across < along;
}

uint32_t row_segments(const RowTensor& tensor, const RowExtents& extents) {
  // So many blocks fill a large device. A segment of fewer elements, or fewer than kLeastSegments
  // of them, are not worth the launches.
  constexpr int64_t kBlocks = 1024, kLeastElements = 8192, kLeastSegments = 4;
  if (extents.rows == 0) return 1;
  const int64_t rows = are_rows_across(tensor, extents) ? RowsAcross::kRows : BlockRow::kRows;
  const int64_t blocks = (extents.rows + rows - 1) / rows;
  const int64_t segments = std::min(kBlocks / blocks, extents.count * rows / kLeastElements);
  return segments < kLeastSegments ? 1 : static_cast<uint32_t>(segments);
}

uint64_t row_parts_bytes(const RowTensor& tensor, const RowExtents& extents, uint32_t reductions) {
  const uint64_t segments = row_segments(tensor, extents);
  if (segments == 1) return 0;
  return segments * reductions * static_cast<uint64_t>(extents.rows) * kPartBytes;
}

bp_reason too_many_rows(const bp_tensor& tensor, uint32_t element_axes) {
  const RowExtents extents = row_extents(tensor, element_axes);
  if (extents.rows > kMaxLaunchElements) return "there are more than 2^30 rows";
  if (extents.count > kMaxLaunchElements) return "a row has more than 2^30 elements";
  return nullptr;
}

}  // namespace bp::cuda
