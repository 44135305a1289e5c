#include "backends/vulkan/kernels/axes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace bp::vulkan {
namespace {

// Returns the stride of an operand along an axis, in bytes.
int64_t stride_of(const AxisOperand& operand, size_t axis) {
  return operand.strides == nullptr ? 0 : operand.strides[axis] * operand.size_bytes;
}

// Returns whether `axis` continues, in every operand, where the axes so far end.
bool merges(std::initializer_list<AxisOperand> operands, size_t axis, uint32_t rank,
            const uint32_t* extents) {
  return std::ranges::all_of(operands, [&](const AxisOperand& o) {
    return stride_of(o, axis) == o.to[rank - 1] * int64_t{extents[rank - 1]};
  });
}

}  // namespace

uint32_t put_axes(std::span<const int64_t> shape, std::initializer_list<AxisOperand> operands,
                  uint32_t (&out_extents)[BP_MAX_RANK], AxisOrder order) {
  std::fill_n(out_extents, BP_MAX_RANK, 1u);
  for (const AxisOperand& o : operands) std::fill_n(o.to, BP_MAX_RANK, int64_t{0});
  std::array<size_t, BP_MAX_RANK> axes{};
  size_t count = 0;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1) axes[count++] = axis;
  }
  if (order == AxisOrder::kByStride) {
    std::stable_sort(axes.begin(), axes.begin() + count, [&](size_t a, size_t b) {
      return std::abs(stride_of(*operands.begin(), a)) < std::abs(stride_of(*operands.begin(), b));
    });
  }
  uint32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto extent = static_cast<uint32_t>(shape[axes[i]]);
    if (rank > 0 && merges(operands, axes[i], rank, out_extents)) {
      out_extents[rank - 1] *= extent;
      continue;
    }
    out_extents[rank] = extent;
    for (const AxisOperand& o : operands) o.to[rank] = stride_of(o, axes[i]);
    ++rank;
  }
  return std::max(rank, 1u);
}

}  // namespace bp::vulkan
