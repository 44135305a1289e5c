// How the elements of a tensor lie.
#pragma once

#include "backplane/kernel.h"
#include "registry/tensors/strides.hpp"

namespace bp::core {

// The class of a tensor whose fast check failed.
bp_layout_flags layout_class_of_other(const bp_tensor& t);

// The first BP_LAYOUT_* class that describes `t`. *out_has_one_element is set for at most one.
inline bp_layout_flags layout_class(const bp_tensor& t, bool* out_has_one_element) {
  int64_t count;
  if (tensors::has_contiguous_strides(t, &count)) {
    *out_has_one_element = count <= 1;
    return BP_LAYOUT_CONTIGUOUS;
  }
  const bp_layout_flags layout = layout_class_of_other(t);
  *out_has_one_element = layout == BP_LAYOUT_CONTIGUOUS;  // Then it is an empty tensor.
  return layout;
}

inline bp_layout_flags layout_class(const bp_tensor& t) {
  bool has_one_element;
  return layout_class(t, &has_one_element);
}

// "contiguous" for BP_LAYOUT_CONTIGUOUS.
const char* layout_name(bp_layout_flags layout);

}  // namespace bp::core
