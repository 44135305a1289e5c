// Products of small matrices by the tensor cores (mma.sync, from compute capability 8.0 on), the
// loads that feed them, and copies to shared memory that run beside the computation.
//
// A warp multiplies a (16, 16) by b (16, 8), elements of f16 or bf16, and adds to c (16, 8) of f32.
// With g = lane / 4 and t = lane % 4, a lane has these elements, two in each register:
//
//   a[0]  row g,     columns 2t, 2t + 1          a[1]  row g + 8, the same columns
//   a[2]  row g,     columns 2t + 8, 2t + 9      a[3]  row g + 8, the same columns
//   b0    rows 2t, 2t + 1 of column g            b1    rows 2t + 8, 2t + 9 of column g
//   c[0], c[1]  row g, columns 2t, 2t + 1        c[2], c[3]  row g + 8, the same columns
//
// mma_bytes() multiplies a (16, 32) by b (32, 8), bytes with or without a sign, and adds to c (16,
// 8) of 32 bits, which wraps. A register has four neighbours in place of two, so that a lane has
// columns 4t to 4t + 3 of a where the picture has 2t, and columns 4t + 16 to 4t + 19 where it has
// 2t + 8; the rows of b in the same way.
//
// So the sums of one product can be the factor a of the next one without leaving their lanes. All
// lanes of a warp call these functions together, except copy_async() and its two companions.
//
// The emulation computes the same from what lanes exchange. It adds 16 products and c exactly, and
// drops the bits that do not fit in f32. A copy arrives only in wait_for_copies(), so that a
// missing wait shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/device.cuh"

#ifdef BACKPLANE_CUDA_EMULATED
#include "backends/cuda/emulation/mma.hpp"
#endif

#ifdef __CUDA_ARCH__
#define BP_UNROLL_BY_2 _Pragma("unroll 2")
#define BP_NO_UNROLL _Pragma("unroll 1")
#else
#define BP_UNROLL_BY_2
#define BP_NO_UNROLL
#endif

namespace bp::cuda {

// Returns two elements of T in one register, each rounded to nearest even.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, Float16>) {
    return bits_as<uint32_t>(__floats2half2_rn(low, high));
  } else {
    return bits_as<uint32_t>(__floats2bfloat162_rn(low, high));
  }
}

template <typename T>
__device__ __forceinline__ float low_of(uint32_t pair) {
  if constexpr (std::is_same_v<T, Float16>) {
    return __low2float(bits_as<__half2>(pair));
  } else {
    return bits_as<float>(pair << 16);
  }
}

template <typename T>
__device__ __forceinline__ float high_of(uint32_t pair) {
  if constexpr (std::is_same_v<T, Float16>) {
    return __high2float(bits_as<__half2>(pair));
  } else {
    return bits_as<float>(pair & 0xFFFF0000u);
  }
}

// Returns x in a way that the compiler cannot see through, so that it computes again what follows
// from x, and holds no registers for it.
__device__ __forceinline__ uint32_t hidden(uint32_t x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

#ifdef BACKPLANE_CUDA_EMULATED

using emulation::commit_copies;
using emulation::copy_async;
using emulation::exp2_fast;
using emulation::load_matrices;
using emulation::load_transposed;
using emulation::mma;
using emulation::mma_bytes;
using emulation::shared_address;
using emulation::SharedAddress;
using emulation::wait_for_block;
using emulation::wait_for_copies;

#else

// A place in shared memory, in bytes.
using SharedAddress = uint32_t;

__device__ __forceinline__ SharedAddress shared_address(const void* place) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(place));
}

// Adds a b to c.
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, Float16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Adds a b to c, with elements of A and B: int8_t or uint8_t.
template <typename A, typename B>
__device__ __forceinline__ void mma_bytes(uint32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
#define BP_MMA_BYTES(types)                                                  \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." types                         \
      ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_signed_v<A> && std::is_signed_v<B>) {
    BP_MMA_BYTES("s8.s8");
  } else if constexpr (std::is_signed_v<A>) {
    BP_MMA_BYTES("s8.u8");
  } else if constexpr (std::is_signed_v<B>) {
    BP_MMA_BYTES("u8.s8");
  } else {
    BP_MMA_BYTES("u8.u8");
  }
#undef BP_MMA_BYTES
}

// Loads four matrices of (8, 8) elements of 16 bits. Lane 8 * i + r says where row r of matrix i
// begins, a multiple of 16 bytes. to[i] gets elements 2t and 2t + 1 of row g of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

// In the same way, to[i] gets elements g of rows 2t and 2t + 1 of matrix i.
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

// Begins a copy of 16 bytes to shared memory, or writes 16 zeros if `is_there` is false, and
// then reads nothing. `from` is an address of global memory in any case.
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(is_there ? 16 : 0)
               : "memory");
}

// Makes a group of the copies that this thread has begun since the last group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all groups of this thread but the last kPending have arrived. Other threads see the
// elements after a barrier.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits for all threads of the block. Warps may call it from different places.
__device__ __forceinline__ void wait_for_block() { asm volatile("bar.sync 0;" ::: "memory"); }

// Returns 2^x with an error of at most 2^-22 of it. A result below 2^-126 is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

}  // namespace bp::cuda
