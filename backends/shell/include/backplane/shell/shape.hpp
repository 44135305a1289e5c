// Questions about dtypes, and about the shape of a tensor.
#pragma once

#include <cstdint>

#include "backplane/tensor.h"

namespace bp {

// Bytes of one element; 0 for the sub-byte dtypes and for those that are not known.
constexpr int64_t dtype_size_bytes(bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
    case BP_I8:
    case BP_U8:
    case BP_F8E4M3FN:
    case BP_F8E5M2:
    case BP_F8E4M3FNUZ:
    case BP_F8E5M2FNUZ:
      return 1;
    case BP_I16:
    case BP_U16:
    case BP_F16:
    case BP_BF16:
      return 2;
    case BP_I32:
    case BP_U32:
    case BP_F32:
      return 4;
    case BP_I64:
    case BP_U64:
    case BP_F64:
    case BP_C64:
      return 8;
    case BP_C128:
      return 16;
    default:
      return 0;
  }
}

inline int64_t element_count(const bp_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.ndim; ++i) n *= t.shape[i];
  return n;
}

// Whether the elements lie in row-major order without gaps; the stride of an extent of 1 is free.
inline bool is_contiguous(const bp_tensor& t) {
  int64_t expected = 1;
  bool is_dense = true;
  for (uint32_t i = t.ndim; i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1) is_dense = is_dense && t.strides[i] == expected;
    expected *= t.shape[i];
  }
  return is_dense;
}

}  // namespace bp
