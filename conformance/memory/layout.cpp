#include "conformance/memory/layout.hpp"

#include <algorithm>

#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

// Returns the strides of a tensor without gaps whose axes lie in `order`, the slowest first.
Shape packed_strides(const Shape& shape, const std::vector<size_t>& order) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides;
}

Placement with_extremes(Shape strides, const Shape& shape) {
  const auto rank = static_cast<uint32_t>(shape.size());
  const tensors::Reach reach = tensors::reach_of(rank, shape.data(), strides.data());
  return {.strides = std::move(strides),
          .lowest = static_cast<int64_t>(reach.lowest),
          .highest = static_cast<int64_t>(reach.highest)};
}

}  // namespace

const char* layout_text(Layout layout) {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kTransposed:
      return "transposed";
    case Layout::kPermuted:
      return "permuted";
    case Layout::kSliced:
      return "sliced";
    case Layout::kStepped:
      return "stepped";
    case Layout::kNegative:
      return "negative";
    case Layout::kReversed:
      return "reversed";
    case Layout::kBroadcastFirst:
      return "broadcast0";
    case Layout::kBroadcastLast:
      return "broadcastn";
    case Layout::kBroadcastAll:
      return "broadcast";
    case Layout::kOffset:
      return "offset";
  }
  return "";
}

bool is_broadcast(Layout layout) {
  return layout == Layout::kBroadcastFirst || layout == Layout::kBroadcastLast ||
         layout == Layout::kBroadcastAll;
}

Placement place_rows(const Shape& shape, int64_t row_stride) {
  std::vector<size_t> order(shape.size());
  for (size_t axis = 0; axis < order.size(); ++axis) order[axis] = axis;
  Shape padded = shape;
  if (!padded.empty()) padded.back() = std::max(row_stride, padded.back());
  return with_extremes(packed_strides(padded, order), shape);
}

Placement place(Layout layout, const Shape& shape, int64_t row_gap) {
  const size_t rank = shape.size();
  std::vector<size_t> order(rank);
  for (size_t axis = 0; axis < rank; ++axis) order[axis] = axis;
  if (layout == Layout::kTransposed && rank >= 2) std::swap(order[rank - 1], order[rank - 2]);
  if (layout == Layout::kPermuted) std::reverse(order.begin(), order.end());
  if (layout == Layout::kSliced && rank >= 1) return place_rows(shape, shape.back() + row_gap);
  Shape strides = packed_strides(shape, order);
  if (layout == Layout::kStepped) {
    for (int64_t& stride : strides) stride *= 2;
  }
  if (layout == Layout::kNegative && rank >= 1) strides.back() = -strides.back();
  if (layout == Layout::kReversed) {
    for (int64_t& stride : strides) stride = -stride;
  }
  if (layout == Layout::kBroadcastFirst && rank >= 1) strides.front() = 0;
  if (layout == Layout::kBroadcastLast && rank >= 1) strides.back() = 0;
  if (layout == Layout::kBroadcastAll) std::fill(strides.begin(), strides.end(), 0);
  return with_extremes(std::move(strides), shape);
}

int64_t element_offset(const Placement& placement, const Shape& shape, int64_t index) {
  int64_t offset = 0;
  for (size_t axis = shape.size(); axis-- > 0 && index != 0;) {
    offset += index % shape[axis] * placement.strides[axis];
    index /= shape[axis];
  }
  return offset;
}

int64_t stored_index(const Placement& placement, const Shape& shape, int64_t index) {
  int64_t stored = 0, scale = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (placement.strides[axis] != 0) stored += index % shape[axis] * scale;
    index /= shape[axis];
    scale *= shape[axis];
  }
  return stored;
}

}  // namespace bp::conformance
