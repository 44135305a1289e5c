// Finds how the elements of a tensor lie.
#pragma once

#include "backplane/kernel.h"
#include "registry/tensors/strides.hpp"

namespace bp::core {

// Returns the class of a tensor whose fast check failed.
bp_layout_flags layout_class_of_other(const bp_tensor& t);

// Returns the first BP_LAYOUT_* class that describes `t`. *out_has_one_element is set for at most
// one element.
inline bp_layout_flags layout_class(const bp_tensor& t, bool* out_has_one_element) {
  int64_t count;
  if (tensors::has_contiguous_strides(t, &count)) {
    *out_has_one_element = count <= 1;
    return BP_LAYOUT_CONTIGUOUS;
  }
  const bp_layout_flags layout = layout_class_of_other(t);
  // A tensor that is contiguous only here is empty.
  *out_has_one_element = layout == BP_LAYOUT_CONTIGUOUS;
  return layout;
}

inline bp_layout_flags layout_class(const bp_tensor& t) {
  bool has_one_element;
  return layout_class(t, &has_one_element);
}

// Returns "contiguous" for BP_LAYOUT_CONTIGUOUS.
const char* layout_name(bp_layout_flags layout);

}  // namespace bp::core
