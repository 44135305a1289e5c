// The host side of reduce.comp: argmax, argmin, and the reductions with a formula, such as sum and
// amax, over some axes of a tensor.
#pragma once

#include <array>
#include <cstdint>

#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// The dtypes of sums within one kind of number: x and y of each row. reductions.def names this
// list; here it replaces the list of that name in kernel_row.hpp.
inline constexpr bp_dtype kSumRows[] = {
    BP_F32,  BP_F32,  BP_F32, BP_F16,  BP_F32, BP_BF16, BP_F16,  BP_F32, BP_F16,  BP_F16, BP_F16,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F16, BP_BF16, BP_BF16, BP_F64, BP_F64,  BP_I32, BP_I32,
    BP_I32,  BP_I64,  BP_I64, BP_I32,  BP_I64, BP_I64,  BP_BOOL, BP_I32, BP_BOOL, BP_I64};
inline constexpr DtypeRows kSumPairs{kSumRows, 2};

// A reduction. Strides are in bytes, and axes are listed with the innermost first.
struct Reduction {
  uint32_t op;  // The id, such as BP_OP_SUM.
  bp_dtype from = BP_F32, to = BP_F32;
  uint64_t from_address = 0, to_address = 0;
  const bp_tensor* from_tensor = nullptr;  // The tensor, if it may be bound.
  uint32_t outer_rank = 0, inner_rank = 0;
  std::array<int64_t, BP_MAX_RANK> outer_extents{}, outer_from{}, outer_to{};
  std::array<int64_t, BP_MAX_RANK> inner_extents{}, inner_from{};
  int64_t outer_count = 1, inner_count = 1;
  int64_t count = 1;                  // Elements of each result, in all parts.
  bool maps = true, finishes = true;  // Parts only map; their combination finishes.
  uint64_t shift_address = 0;         // The shifts of the results, without gaps.
};

// Makes the reduction of x over `axes`, one bit each, to y. y lacks these axes or has them with
// extent 1.
Reduction make_reduction(uint32_t op, const bp_tensor& x, const bp_tensor& y, uint32_t axes);

// Returns the scratch memory of a reduction. A long reduction, and one whose formula has a shift,
// need some.
uint64_t reduction_workspace(const Reduction& reduction);

// Submits a reduction. It reads `reads` and writes `writes`; `workspace` is the address of the
// scratch memory.
bp_status submit_reduction(Launch& launch, const Reduction& reduction, const Ranges& reads,
                           const Ranges& writes, uint64_t workspace);

}  // namespace bp::vulkan
