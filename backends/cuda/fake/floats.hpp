// Reads and writes elements of tensors as doubles, for the fake libraries.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace bp::cuda::fake {

// Returns the bytes of an element of f16, bf16, f32 or f64.
inline size_t item_bytes(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

// Returns element number `index` of the elements that begin at `begin`.
inline double load(const std::byte* begin, cudaDataType_t type, int64_t index) {
  switch (type) {
    case CUDA_R_64F:
      return reinterpret_cast<const double*>(begin)[index];
    case CUDA_R_32F:
      return static_cast<double>(reinterpret_cast<const float*>(begin)[index]);
    case CUDA_R_16F:
      return static_cast<double>(__half2float(reinterpret_cast<const __half*>(begin)[index]));
    default:
      return static_cast<double>(
          __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(begin)[index]));
  }
}

inline void store(std::byte* begin, cudaDataType_t type, int64_t index, double value) {
  switch (type) {
    case CUDA_R_64F:
      reinterpret_cast<double*>(begin)[index] = value;
      return;
    case CUDA_R_32F:
      reinterpret_cast<float*>(begin)[index] = static_cast<float>(value);
      return;
    case CUDA_R_16F:
      reinterpret_cast<__half*>(begin)[index] = __double2half(value);
      return;
    default:
      reinterpret_cast<__nv_bfloat16*>(begin)[index] = __double2bfloat16(value);
  }
}

// Returns an f32 rounded to 10 bits of its fraction, to nearest. A finite number stays finite.
inline double as_tf32(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  constexpr uint32_t kExponent = 0x7F800000u, kDropped = 0x1FFFu;
  const auto is_finite = [](uint32_t word) { return (word & kExponent) != kExponent; };
  if (!is_finite(bits)) return value;
  const uint32_t rounded = (bits + kDropped / 2 + 1) & ~kDropped;
  return static_cast<double>(std::bit_cast<float>(is_finite(rounded) ? rounded : bits & ~kDropped));
}

}  // namespace bp::cuda::fake
