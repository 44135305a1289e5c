// What every kernel file needs: how kernels are launched, claims, and choosing by dtype.
//
// A kernel file has device code, a launch function that reads the frame and launches, and one table
// row per kernel, listed in list.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>

#include "backends/cuda/kernel_row.hpp"
#include "backends/cuda/kernels/loop.hpp"
#include "backends/cuda/kernels/scalar.hpp"
#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"

#ifdef BACKPLANE_CUDA_EMULATED
#include "backends/cuda/emulation/emulation.hpp"
#endif

namespace bp::cuda {

// ---- Launches -----------------------------------------------------------------------------------

constexpr unsigned kBlockThreads = 256;

// Blocks of `per_block` that hold `count`, at most 2^31 - 1.
constexpr unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// How many of `count` terms, in whole units, are summed at a time before that sum is added to what
// there is: as many as there are blocks, so that the error grows with the square root of `count`.
inline int64_t block_of_sum(int64_t count, int64_t unit) {
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(count)));
  return (root / unit + 1) * unit;
}

// Launches kKernel with one argument of the types it takes.
template <auto kKernel, typename... Params>
bp_status run(Launch& launch, dim3 blocks, unsigned threads, size_t shared_bytes,
              Params... params) {
#ifdef BACKPLANE_CUDA_EMULATED
  emulation::Grid grid = {blocks, dim3(threads), shared_bytes};
  void* args[] = {&params..., &grid};
  const void* const entry = emulation::entry_of<kKernel, Params...>();
#else
  void* args[] = {&params...};
  const auto entry = reinterpret_cast<const void*>(kKernel);
#endif
  return launch.launch(entry, blocks, dim3(threads), shared_bytes, args);
}

// ---- Claims -------------------------------------------------------------------------------------

constexpr bp_dtype kFloatDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16};
constexpr bp_dtype kNumberDtypes[] = {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64};
// Everything that an element can be moved as.
constexpr bp_dtype kAnyDtypes[] = {BP_BOOL, BP_U8,  BP_I8,   BP_I16, BP_I32,
                                   BP_I64,  BP_F16, BP_BF16, BP_F32, BP_F64};

// A row of the table for one free dtype.
template <size_t kCount>
constexpr bp_kernel kernel_row(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount],
                               bp_kernel_flags flags = 0) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC | flags,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
      .layouts = BP_LAYOUT_ANY,
  };
}

// The same where a tensor of indices is free too: the dtypes of claims, each with i64 and with i32.
template <size_t kCount>
struct WithIndices {
  constexpr explicit WithIndices(const bp_dtype (&dtypes)[kCount]) {
    size_t next = 0;
    for (const bp_dtype dtype : dtypes) {
      for (const bp_dtype index : {BP_I64, BP_I32}) {
        rows[next++] = dtype;
        rows[next++] = index;
      }
    }
  }
  bp_dtype rows[4 * kCount]{};
};

template <size_t kCount>
constexpr bp_kernel kernel_row(const char* name, uint32_t op, const WithIndices<kCount>& dtypes,
                               bp_kernel_flags flags = 0) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC | flags,
      .dtype_rows = dtypes.rows,
      .dtype_row_count = 2 * kCount,
      .dtype_count = 2,
      .layouts = BP_LAYOUT_ANY,
  };
}

// Calls fn(T{}) for the element type of a float dtype.
template <typename Fn>
bp_status with_float(bp_dtype dtype, const Fn& fn) {
  switch (dtype) {
    case BP_F16:
      return fn(Float16{});
    case BP_BF16:
      return fn(BFloat16{});
    case BP_F32:
      return fn(float{});
    case BP_F64:
      return fn(double{});
    default:
      refuse(BP_UNSUPPORTED, "the kernel has no code for dtype " + std::to_string(dtype));
  }
}

// The same for the dtypes of kNumberDtypes.
template <typename Fn>
bp_status with_number(bp_dtype dtype, const Fn& fn) {
  if (dtype == BP_I32) return fn(int32_t{});
  if (dtype == BP_I64) return fn(int64_t{});
  return with_float(dtype, fn);
}

// The same for the dtypes of kAnyDtypes; a bool is a byte.
template <typename Fn>
bp_status with_any(bp_dtype dtype, const Fn& fn) {
  if (dtype == BP_BOOL || dtype == BP_U8) return fn(uint8_t{});
  if (dtype == BP_I8) return fn(int8_t{});
  if (dtype == BP_I16) return fn(int16_t{});
  return with_number(dtype, fn);
}

// Calls fn(T{}) for a number without a sign that is as wide as an element.
template <typename Fn>
bp_status with_width(int64_t size_bytes, const Fn& fn) {
  switch (size_bytes) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    default:
      return fn(uint64_t{});
  }
}

// ---- Operands -----------------------------------------------------------------------------------

// A tensor of the call as an operand of a loop; NULL is one whose value is in the call.
inline Operand operand(const bp_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {data<const std::byte>(*tensor), tensor->strides, dtype_size_bytes(tensor->dtype)};
}

}  // namespace bp::cuda
