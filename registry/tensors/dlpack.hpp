// The dtypes that both DLPack and this ABI have: all of 8 bits and more.
#pragma once

#include "backplane/dlpack.h"
#include "registry/tensors/strides.hpp"

namespace bp::core {

constexpr uint32_t kDlpackMajor = 1, kDlpackMinor = 0;  // DLPack 1.0 has all that is used.

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
    {BP_F8E8M0FNU, {BP_DLPACK_F8E8M0FNU, 8, 1}},
};

// The bytes that hold the elements of a tensor, and the place of the first element in them.
struct Place {
  uint64_t begin = 0, size_bytes = 0, first_offset = 0;
};

// Finds the place of a tensor whose first element lies at `first`, an address or an offset in a
// buffer. For a tensor without elements it does nothing. Returns false if 63 bits cannot count the
// bytes.
inline bool place_of(const bp_tensor& tensor, uint64_t item_bytes, uint64_t first, Place& out) {
  const tensors::Reach reach = tensors::reach_of(tensor);
  if (reach.span() == 0) return true;
  const tensors::Wide size_bytes = reach.span() * item_bytes;
  const tensors::Wide below_bytes = -reach.lowest * item_bytes;
  if (size_bytes > UINT64_MAX) return false;
  // The caller decides about elements before the beginning: of a buffer, or of all memory.
  if (below_bytes > first) {
    out = {0, static_cast<uint64_t>(size_bytes), static_cast<uint64_t>(below_bytes)};
    return false;
  }
  const tensors::Wide begin = first - below_bytes;
  // Offsets between elements are signed.
  if (begin + size_bytes > UINT64_MAX || size_bytes > INT64_MAX) return false;
  out = {static_cast<uint64_t>(begin), static_cast<uint64_t>(size_bytes),
         static_cast<uint64_t>(below_bytes)};
  return true;
}

}  // namespace bp::core
