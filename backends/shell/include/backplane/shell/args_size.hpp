// The size of the frame of an op in each revision of the operators. A kernel names the revision for
// which it was written, and the size that its frame has there.
//
//   kArgsSize<bp_softmax_args, 3>   BP_SOFTMAX_ARGS_SIZE_R3, which is the size until a later
//   revision
//                                   appends to the frame
#pragma once

#include <cstdint>

#include "backplane/ops.h"

namespace bp {

// The revision for which the kernels that link this library are written.
inline constexpr uint32_t kSpecRevision = 4;

// A frame has the size of the last revision that changed it.
template <typename Args, uint32_t Revision>
inline constexpr uint32_t kArgsSize = kArgsSize<Args, Revision - 1>;

// No revision up to the given one has the op.
template <typename Args>
inline constexpr uint32_t kArgsSize<Args, 0> = Args::has_no_size;

#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_ARGS_SIZE(op, revision, bytes) \
  template <>                             \
  inline constexpr uint32_t kArgsSize<bp_##op##_args, revision> = (bytes);
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG

}  // namespace bp
