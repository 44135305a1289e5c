#include "ops_spec/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "backplane/host.h"
#include "ops_spec/dims.hpp"
#include "registry/tensors/strides.hpp"

namespace bp {
namespace {

constexpr int64_t kFar = kFarthestByte;  // It lies beyond every buffer.

int64_t or_far(int64_t value) { return value == dims::kNone ? kFar : value; }

// A packed element counts as a byte until Layout::take_whole_bytes().
int64_t element_bytes(const bp_tensor& tensor) {
  return std::max<int64_t>(bp_dtype_bits(tensor.dtype) / 8, 1);
}

struct Axis {
  int64_t step;  // Above 0, counted in bytes.
  // The distance in bytes of the last element of the axis from the first.
  int64_t reach;
};

// The axes with more than one element. All are turned so that they count upwards from `begin`.
struct Layout {
  Axis axes[BP_MAX_RANK];
  uint32_t count = 0;
  int64_t begin;
  int64_t size;         // The bytes of one element.
  bool is_sane = true;  // False if a step or reach is beyond every buffer.

  explicit Layout(const bp_tensor& tensor)
      : Layout(tensor, static_cast<int64_t>(tensor.byte_offset), element_bytes(tensor)) {
    if (bp_dtype_bits(tensor.dtype) % 8 != 0) take_whole_bytes(tensor);
  }

  // Counts in elements if `element_size` is 1, whatever their bits are.
  Layout(const bp_tensor& tensor, int64_t first, int64_t element_size)
      : begin(first), size(element_size) {
    for (uint32_t i = 0; i < tensor.ndim; ++i) {
      if (tensor.shape[i] <= 1) continue;
      const int64_t step = dims::mul(tensor.strides[i], size);
      const int64_t reach = dims::mul(step, tensor.shape[i] - 1);
      if (reach < 0) begin = dims::add(begin, reach);
      axes[count++] = {std::abs(std::max(step, -kFar)), std::abs(std::max(reach, -kFar))};
      is_sane =
          is_sane && reach != dims::kNone && begin != dims::kNone && axes[count - 1].step < kFar;
    }
    std::sort(axes, axes + count, [](Axis a, Axis b) { return a.step < b.step; });
  }

  // Makes one piece of all bytes from the first packed element to the last.
  void take_whole_bytes(const bp_tensor& tensor) {
    const tensors::Wide bits = bp_dtype_bits(tensor.dtype), first = tensor.byte_offset;
    const tensors::Reach reach = tensors::reach_of(tensor);
    const tensors::Wide low = first - (7 - reach.lowest * bits) / 8;
    const tensors::Wide high = first + ((reach.highest + 1) * bits + 7) / 8;
    is_sane = low > -kFar && high < kFar;
    count = 0;
    begin = is_sane ? static_cast<int64_t>(low) : 0;
    size = is_sane ? static_cast<int64_t>(high - low) : kFar;
  }

  // Returns the bytes that the axes with steps below `limit` take up, from the first to behind the
  // last.
  [[nodiscard]] int64_t extent_below(int64_t limit) const {
    int64_t extent = size;
    for (uint32_t i = 0; i < count && axes[i].step < limit; ++i) {
      extent = or_far(dims::add(extent, axes[i].reach));
    }
    return extent;
  }

  // Returns the greatest common divisor of `base` and of the steps from `limit` on.
  [[nodiscard]] int64_t divisor_from(int64_t limit, int64_t base) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (axes[i].step >= limit) base = std::gcd(base, axes[i].step);
    }
    return base;
  }
};

// Returns whether a and b are apart because both consist of pieces that repeat with a common
// period, and the pieces of one lie between the pieces of the other. Axes with steps from `limit`
// on repeat the pieces.
bool are_apart(const Layout& a, const Layout& b, int64_t limit) {
  const int64_t period = b.divisor_from(limit, a.divisor_from(limit, 0));
  const int64_t a_extent = a.extent_below(limit);
  const int64_t b_extent = b.extent_below(limit);
  if (period == 0 || a_extent > period || b_extent > period) return false;
  const int64_t distance = dims::mod(dims::sub(b.begin, a.begin), period);
  return distance >= a_extent && distance <= period - b_extent;
}

}  // namespace

bool overlaps_itself(const bp_tensor& tensor) {
  if (tensors::is_contiguous(tensor)) return false;
  const Layout layout(tensor, 0, 1);
  for (uint32_t i = 0; i < layout.count; ++i) {
    int64_t extent = layout.size;
    for (uint32_t j = 0; j < i; ++j) extent = or_far(dims::add(extent, layout.axes[j].reach));
    if (layout.axes[i].step < extent) return true;
  }
  return false;
}

ByteRange byte_range(const bp_tensor& tensor) {
  if (!tensors::has_elements(tensor)) return {0, 0};
  if (bp_dtype_bits(tensor.dtype) % 8 == 0 && tensors::is_contiguous(tensor)) {
    const auto begin = static_cast<int64_t>(tensor.byte_offset);
    const int64_t bytes = dims::mul(dims::numel(dims::shape(tensor)), element_bytes(tensor));
    return {begin, or_far(dims::add(begin, bytes))};
  }
  const Layout layout(tensor);
  if (!layout.is_sane) return {-kFar, kFar};
  return {layout.begin, or_far(dims::add(layout.begin, layout.extent_below(kFar)))};
}

bool overlap(const bp_tensor& a, const bp_tensor& b) {
  if (a.buffer == nullptr || a.buffer != b.buffer) return false;
  if (!tensors::has_elements(a) || !tensors::has_elements(b)) return false;
  const Layout x(a);
  const Layout y(b);
  if (!x.is_sane || !y.is_sane) return true;
  if (or_far(dims::add(x.begin, x.extent_below(kFar))) <= y.begin ||
      or_far(dims::add(y.begin, y.extent_below(kFar))) <= x.begin) {
    return false;
  }
  for (const Layout* layout : {&x, &y}) {
    for (uint32_t i = 0; i < layout->count; ++i) {
      if (are_apart(x, y, layout->axes[i].step)) return false;
    }
  }
  return true;
}

bool is_same_memory(const bp_tensor& a, const bp_tensor& b) {
  if (a.buffer != b.buffer || a.byte_offset != b.byte_offset ||
      bp_dtype_bits(a.dtype) != bp_dtype_bits(b.dtype) || !(dims::shape(a) == dims::shape(b))) {
    return false;
  }
  for (uint32_t i = 0; i < a.ndim; ++i) {
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

}  // namespace bp
