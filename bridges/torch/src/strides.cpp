#include "strides.h"

#include <algorithm>
#include <numeric>

namespace bpt {
namespace {

using at::MemoryFormat;
using at::Tensor;

at::DimVector dense_strides(at::IntArrayRef shape, const at::DimVector& from_fastest) {
  at::DimVector strides(shape.size(), 0);
  int64_t next = 1;
  for (const int64_t axis : from_fastest) {
    strides[axis] = next;
    next *= shape[axis];
  }
  return strides;
}

// Says whether axis `a` is slower than axis `b` (1), faster (-1), or neither (0).
int compare(at::IntArrayRef shape, at::ArrayRef<const Tensor*> inputs, int64_t a, int64_t b) {
  for (const Tensor* input : inputs) {
    const int64_t of_a = input->stride(a), of_b = input->stride(b);
    if (of_a == 0 || of_b == 0) continue;
    if (of_a != of_b) return of_a < of_b ? -1 : 1;
    if (shape[a] > shape[b]) return 1;
  }
  return 0;
}

// Sorts the axes, the fastest one first. The comparison is no order: two axes that no input settles
// keep the places that they have, so the steps of this sort by insertion are part of the result.
at::DimVector sorted_axes(at::IntArrayRef shape, at::ArrayRef<const Tensor*> inputs) {
  const auto rank = static_cast<int64_t>(shape.size());
  at::DimVector axes(rank, 0);
  std::iota(axes.rbegin(), axes.rend(), 0);
  for (int64_t i = 1; i < rank; ++i) {
    int64_t own = i;
    for (int64_t other = i - 1; other >= 0; --other) {
      const int order = compare(shape, inputs, axes[other], axes[own]);
      if (order < 0) break;
      if (order == 0) continue;
      std::swap(axes[other], axes[own]);
      own = other;
    }
  }
  return axes;
}

bool are_all(at::ArrayRef<const Tensor*> tensors, auto&& test) {
  return std::all_of(tensors.begin(), tensors.end(), test);
}

// What PyTorch decides without a look at the axes, if no input is broadcast or contiguous.
std::optional<at::DimVector> of_equal_inputs(at::ArrayRef<const Tensor*> inputs) {
  const Tensor& first = *inputs[0];
  if (are_all(inputs,
              [](const Tensor* t) { return t->is_contiguous(MemoryFormat::ChannelsLast); })) {
    const std::vector<int64_t> strides = c10::get_channels_last_strides_2d(first.sizes());
    return at::DimVector(strides.begin(), strides.end());
  }
  const bool is_dense = are_all(inputs, [&](const Tensor* t) {
    return t->is_non_overlapping_and_dense() && t->strides() == first.strides();
  });
  if (!is_dense) return std::nullopt;
  return at::DimVector(first.strides().begin(), first.strides().end());
}

}  // namespace

std::optional<at::DimVector> strides_of_result(at::IntArrayRef shape, at::TensorList inputs,
                                               bool is_broadcast) {
  if (shape.size() < 2) return std::nullopt;
  c10::SmallVector<const Tensor*, 4> own;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.sizes() == shape) own.push_back(&input);
  }
  if (!is_broadcast) {
    if (are_all(own, [](const Tensor* t) { return t->is_contiguous(); })) return std::nullopt;
    if (auto strides = of_equal_inputs(own)) return strides;
  }
  const at::DimVector axes = sorted_axes(shape, own);
  if (std::is_sorted(axes.rbegin(), axes.rend())) return std::nullopt;
  return dense_strides(shape, axes);
}

}  // namespace bpt
