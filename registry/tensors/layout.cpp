#include "registry/tensors/layout.hpp"

namespace bp::core {

bp_layout_flags layout_class_of_other(const bp_tensor& t) {
  // The axes whose extent is not 1, from the shortest stride to the longest.
  uint32_t axes[BP_MAX_RANK];
  uint32_t count = 0;
  bool repeats = false;
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] == 0) return BP_LAYOUT_CONTIGUOUS;
    if (t.shape[i] == 1) continue;
    repeats = repeats || t.strides[i] == 0;
    uint32_t place = count++;
    for (; place > 0 && t.strides[axes[place - 1]] > t.strides[i]; --place) {
      axes[place] = axes[place - 1];
    }
    axes[place] = i;
  }
  if (repeats) return BP_LAYOUT_BROADCAST;
  // Checks whether the axes lie behind each other without gaps.
  int64_t expected = 1;
  bool is_dense = true;
  for (uint32_t i = 0; is_dense && i < count; ++i) {
    is_dense = t.strides[axes[i]] == expected;
    expected = tensors::wrapped_product(expected, t.shape[axes[i]]);
  }
  if (is_dense) return BP_LAYOUT_DENSE_PERMUTED;
  const bool is_inner_dense = t.shape[t.ndim - 1] == 1 || t.strides[t.ndim - 1] == 1;
  return is_inner_dense ? BP_LAYOUT_INNER_DENSE : BP_LAYOUT_ANY;
}

const char* layout_name(bp_layout_flags layout) {
  switch (layout) {
    case BP_LAYOUT_CONTIGUOUS:
      return "contiguous";
    case BP_LAYOUT_DENSE_PERMUTED:
      return "dense_permuted";
    case BP_LAYOUT_BROADCAST:
      return "broadcast";
    case BP_LAYOUT_INNER_DENSE:
      return "inner_dense";
    case BP_LAYOUT_ANY:
      return "any";
    default:
      return "opaque";
  }
}

}  // namespace bp::core
