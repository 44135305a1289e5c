// The elements that both DLPack and this ABI have: all of 8 bits and more.
#pragma once

#include "backplane/dlpack.h"

namespace bp::core {

constexpr uint32_t kDlpackMajor = 1, kDlpackMinor = 0;  // What is used came with 1.0.

struct DlpackDtype {
  bp_dtype ours;
  bp_dlpack_dtype theirs;
};
inline constexpr DlpackDtype kDlpackDtypes[] = {
    {BP_BOOL, {BP_DLPACK_BOOL, 8, 1}},
    {BP_I8, {BP_DLPACK_INT, 8, 1}},
    {BP_I16, {BP_DLPACK_INT, 16, 1}},
    {BP_I32, {BP_DLPACK_INT, 32, 1}},
    {BP_I64, {BP_DLPACK_INT, 64, 1}},
    {BP_U8, {BP_DLPACK_UINT, 8, 1}},
    {BP_U16, {BP_DLPACK_UINT, 16, 1}},
    {BP_U32, {BP_DLPACK_UINT, 32, 1}},
    {BP_U64, {BP_DLPACK_UINT, 64, 1}},
    {BP_F16, {BP_DLPACK_FLOAT, 16, 1}},
    {BP_BF16, {BP_DLPACK_BFLOAT, 16, 1}},
    {BP_F32, {BP_DLPACK_FLOAT, 32, 1}},
    {BP_F64, {BP_DLPACK_FLOAT, 64, 1}},
    {BP_C64, {BP_DLPACK_COMPLEX, 64, 1}},
    {BP_C128, {BP_DLPACK_COMPLEX, 128, 1}},
    {BP_F8E4M3FN, {BP_DLPACK_F8E4M3FN, 8, 1}},
    {BP_F8E5M2, {BP_DLPACK_F8E5M2, 8, 1}},
    {BP_F8E4M3FNUZ, {BP_DLPACK_F8E4M3FNUZ, 8, 1}},
    {BP_F8E5M2FNUZ, {BP_DLPACK_F8E5M2FNUZ, 8, 1}},
};

// The bytes that the elements of a tensor lie in, and where in them the first element is.
struct Place {
  uint64_t begin = 0, size_bytes = 0, first_offset = 0;
};

// Of a tensor whose first element lies at `first`, an address or an offset in a buffer. Nothing for
// a tensor without elements. False if 63 bits do not count it.
inline bool place_of(const bp_tensor& tensor, uint64_t item_bytes, uint64_t first, Place& out) {
  // How far the elements reach below the first one, and above it.
  uint64_t below = 0, above = 0;
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return true;
  }
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    const int64_t stride = tensor.strides[i];
    const uint64_t step =
        stride < 0 ? 0 - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
    uint64_t reach = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[i] - 1), step, &reach)) {
      return false;
    }
    uint64_t& side = stride < 0 ? below : above;
    if (__builtin_add_overflow(side, reach, &side)) return false;
  }
  uint64_t count = 0, size_bytes = 0, below_bytes = 0, end = 0;
  if (__builtin_add_overflow(below, above, &count) || __builtin_add_overflow(count, 1, &count) ||
      __builtin_mul_overflow(count, item_bytes, &size_bytes) ||
      __builtin_mul_overflow(below, item_bytes, &below_bytes)) {
    return false;
  }
  // Elements before the begin are for the caller to judge: of a buffer, or of all memory.
  if (below_bytes > first) {
    out = {0, size_bytes, below_bytes};
    return false;
  }
  if (__builtin_add_overflow(first - below_bytes, size_bytes, &end)) return false;
  // Offsets between elements are signed.
  if (size_bytes > static_cast<uint64_t>(INT64_MAX)) return false;
  out = {first - below_bytes, size_bytes, below_bytes};
  return true;
}

}  // namespace bp::core
