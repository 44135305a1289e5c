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

}  // namespace bp::core
