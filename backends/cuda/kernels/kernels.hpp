// The header of every kernel file, with functions that launch kernels and choose by dtype.
//
// A kernel file has device code, a launch function that reads the frame and launches, and one table
// row per kernel, listed in kernels.def.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/loop.hpp"
#include "backends/cuda/kernels/scalar.hpp"
#include "backends/cuda/make_kernel.hpp"
#include "backplane/ops.h"
#include "backplane/shell/dtypes.hpp"
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/shape.hpp"

#ifdef BACKPLANE_CUDA_EMULATED
#include "backends/cuda/emulation/emulation.hpp"
#endif

namespace bp::cuda {

// ---- Launches -----------------------------------------------------------------------------------

constexpr unsigned kBlockThreads = 256;

// Returns how many blocks of `per_block` hold `count`, at most 2^31 - 1.
constexpr unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// Returns how many of `count` terms, in whole units, are summed at a time before the sum is added
// to the total. A block has about as many terms as there are blocks, so that the error grows with
// the square root of `count`.
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

// ---- Dtypes -------------------------------------------------------------------------------------

using DeviceElements = Elements<Float16, BFloat16>;

// Calls fn(T{}) for the element type of a dtype of kFloatDtypes.
template <typename Fn>
bp_status with_float(bp_dtype dtype, const Fn& fn) {
  return DeviceElements::with_float(dtype, fn);
}

// Calls fn(T{}) in the same way for the dtypes of kIntegerDtypes.
template <typename Fn>
bp_status with_integer(bp_dtype dtype, const Fn& fn) {
  return DeviceElements::with_integer(dtype, fn);
}

// Calls fn(T{}) in the same way for the dtypes of kNumberDtypes.
template <typename Fn>
bp_status with_number(bp_dtype dtype, const Fn& fn) {
  return DeviceElements::with_number(dtype, fn);
}

// Calls fn(T{}) in the same way for the dtypes of kAnyDtypes. A bool is a byte.
template <typename Fn>
bp_status with_any(bp_dtype dtype, const Fn& fn) {
  return DeviceElements::with_any(dtype, fn);
}

// Returns whether indices are i64; if not, they are i32. Throws StatusError of BP_UNSUPPORTED for
// any other dtype.
inline bool is_i64_index(bp_dtype dtype) { return one_of(kIndexDtypes, dtype) == BP_I64; }

// Calls fn(T{}) for the unsigned integer that is as wide as an element. Throws StatusError of
// BP_UNSUPPORTED if there is none.
template <typename Fn>
bp_status with_width(int64_t size_bytes, const Fn& fn) {
  switch (size_bytes) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    case 8:
      return fn(uint64_t{});
    default:
      throw StatusError(BP_UNSUPPORTED, "the kernel has no code for elements of " +
                                            std::to_string(size_bytes) + " bytes");
  }
}

// ---- Operands -----------------------------------------------------------------------------------

// Returns a tensor as an operand of a loop. NULL stands for a value in the call.
inline Operand operand(const bp_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {data<const std::byte>(*tensor), tensor->strides, dtype_size_bytes(tensor->dtype)};
}

}  // namespace bp::cuda
