// The device code that kernels share: widening and rounding of elements, vectors of 16 bytes, and
// reductions over a warp or a block.
//
// Kernels also run without a GPU: with BACKPLANE_CUDA_EMULATED the same sources are compiled for
// the host, and emulation/emulation.hpp replaces the device. Functions that need no neighbours are
// __host__ __device__, so that tests can call them.
#pragma once

#ifdef BACKPLANE_CUDA_EMULATED
#include "backends/cuda/emulation/emulation.hpp"
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/cuda/bad_data.hpp"
#include "backends/cuda/dialect.hpp"

// A loop with this in front is unrolled on the device.
#if BP_IS_DEVICE_CODE
#define BP_UNROLL _Pragma("unroll")
#else
#define BP_UNROLL
#endif

namespace bp::cuda {

// The C functions of these names take doubles. The functions of std take the type of the argument.
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::ceil;
using std::copysign;
using std::cos;
using std::cosh;
using std::erf;
using std::erfc;
using std::exp;
using std::exp2;
using std::expm1;
using std::fabs;
using std::floor;
using std::fma;
using std::hypot;
using std::isfinite;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::pow;
using std::rint;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
using std::trunc;
// These functions are in CUDA, but not on the host of the emulation.
#ifdef BACKPLANE_CUDA_EMULATED
using emulation::erfinv;
#else
using ::erfinv;
#endif

// The indices that name an element of an axis, and what becomes of another index. The attribute
// `bounds` of an op says it. `undefined` clamps too: results may be anything, and clamped indices
// touch no foreign memory.
struct Bounds {
  int64_t extent = 0;
  uint32_t bounds = 0;

  __host__ __device__ __forceinline__ bool contains(int64_t index) const {
    return index >= 0 && index < extent;
  }
  // Returns the index that acts for `index`. It may be out of range only if the op fails then.
  __host__ __device__ __forceinline__ int64_t acting(int64_t index) const {
    if (bounds == 0) return index;
    const int64_t last = extent - 1;
    return index < 0 || last < 0 ? 0 : index < last ? index : last;
  }
};

// Writes element `at` of a tensor of indices, which are i64 or i32.
__host__ __device__ __forceinline__ void store_index(std::byte* to, int64_t at, bool is_i64,
                                                     int64_t index) {
  if (is_i64) {
    reinterpret_cast<int64_t*>(to)[at] = index;
  } else {
    reinterpret_cast<int32_t*>(to)[at] = static_cast<int32_t>(index);
  }
}

// Makes an index that is out of range a failure of the stream. `place` is where the index lies.
__device__ inline void report(const Reporter& reporter, int64_t index, const void* place) {
  volatile BadDataReport* const to = reporter.report;
  if (to->launch != 0) return;
  to->index = index;
  to->place = reinterpret_cast<uint64_t>(place);
  __threadfence_system();  // A reader who sees the launch also sees the rest.
  to->launch = reporter.launch;
}

using Float16 = __half;
using BFloat16 = __nv_bfloat16;

template <typename T>
inline constexpr bool kIsNarrow = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The type in which elements of T are computed.
template <typename T>
using Compute = std::conditional_t<kIsNarrow<T>, float, T>;

template <typename To, typename From>
__host__ __device__ __forceinline__ To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(To));  // Classes such as __half2 are bits too.
  return to;
}

template <typename T>
__host__ __device__ __forceinline__ Compute<T> widen(T x) {
  if constexpr (std::is_same_v<T, Float16>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

// ---- Rounding -----------------------------------------------------------------------------------

// Returns `x` rounded toward 0, with the last bit set if this was not exact. The result rounds to a
// narrower float as `x` itself would.
__host__ __device__ __forceinline__ float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  const bool is_above = fabs(static_cast<double>(nearest)) > fabs(x);
  const uint32_t bits = bits_as<uint32_t>(nearest);
  return bits_as<float>((is_above ? bits - 1 : bits) | 1u);
}

__host__ __device__ __forceinline__ float round_to_odd(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (x >= kExact || x <= -kExact) {
    // A double holds the remaining bits, and the lowest bit stands for all dropped ones.
    x = (x >> 12 | static_cast<int64_t>((x & 0xFFF) != 0)) * 4096;
  }
  return round_to_odd(static_cast<double>(x));
}

// Returns `x` as a T, rounded once to nearest even.
template <typename T, typename From>
__host__ __device__ __forceinline__ T narrow(From x) {
  if constexpr (std::is_same_v<T, From>) {
    return x;
  } else if constexpr (kIsNarrow<From>) {
    return narrow<T>(widen(x));
  } else if constexpr (kIsNarrow<T>) {
    float f;
    if constexpr (std::is_same_v<From, float>) {
      f = x;
    } else if constexpr (std::is_same_v<From, double>) {
      f = round_to_odd(x);
    } else {
      f = round_to_odd(static_cast<int64_t>(x));
    }
    if constexpr (std::is_same_v<T, Float16>) {
      return __float2half_rn(f);
    } else {
      return __float2bfloat16_rn(f);
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<T> && sizeof(T) < 8) {
    return static_cast<T>(static_cast<int64_t>(x));
  } else {
    return static_cast<T>(x);
  }
}

template <typename T>
__host__ __device__ __forceinline__ bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x != x;
  } else {
    return false;
  }
}

// Returns the larger element. NaN is larger than every number, and if both are equal, the first
// stays.
template <typename C>
__host__ __device__ __forceinline__ bool is_larger(C best, C x) {
  return best < x || (is_nan(x) && !is_nan(best));
}

// Returns the same of the smaller element.
template <typename C>
__host__ __device__ __forceinline__ bool is_smaller(C best, C x) {
  return x < best || (is_nan(x) && !is_nan(best));
}

template <typename C>
__host__ __device__ __forceinline__ C infinity() {
  return std::numeric_limits<C>::infinity();
}

// Return a * b, rounded. The compiler cannot fuse it with an addition.
__host__ __device__ __forceinline__ double product_of(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
__host__ __device__ __forceinline__ float product_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// ---- Vectors ------------------------------------------------------------------------------------

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vec {
  T at[kCount];
};

// Several elements of T that are loaded at once.
template <typename T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

// ---- Reductions ---------------------------------------------------------------------------------

// A sum of many terms by one thread. The rounding error of a sum in f32 is summed beside it
// (Knuth's two-sum), so that the error does not grow with the number of terms.
template <typename C>
class LongSum {
 public:
  LongSum() = default;
  __host__ __device__ explicit LongSum(C first) : sum_(first) {}

  __host__ __device__ __forceinline__ void add(C term) {
#ifdef BACKPLANE_CUDA_EMULATED
    emulation::count_addition();
#endif
    const C next = sum_ + term;
    if constexpr (std::is_same_v<C, float>) {
      const C part = next - sum_;
      lost_ += (sum_ - (next - part)) + (term - part);
    }
    sum_ = next;
  }
  // The lost part of an infinite sum is NaN and is not added.
  __host__ __device__ __forceinline__ C total() const {
    if constexpr (std::is_same_v<C, float>) return isfinite(sum_) ? sum_ + lost_ : sum_;
    return sum_;
  }

 private:
  C sum_ = 0;
  C lost_ = static_cast<C>(-0.0);  // Adding -0 keeps a sum of -0.
};

constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kWarpSize = 32;

struct Plus {
  template <typename A>
  __host__ __device__ A operator()(A a, A b) const {
    return a + b;
  }
};

struct Larger {
  template <typename A>
  __host__ __device__ A operator()(A a, A b) const {
    return is_larger(a, b) ? b : a;
  }
};

template <typename A>
__device__ __forceinline__ A shuffle_xor(A value, int mask) {
  if constexpr (std::is_arithmetic_v<A>) {
    return __shfl_xor_sync(kAllLanes, value, mask);
  } else {
    return value.shuffled(mask);
  }
}

// Two sums that are added up together.
template <typename C>
struct SumPair {
  C first, second;

  __host__ __device__ SumPair operator+(const SumPair& other) const {
    return {first + other.first, second + other.second};
  }
  __device__ SumPair shuffled(int mask) const {
    return {shuffle_xor(first, mask), shuffle_xor(second, mask)};
  }
};

// Reduces over a warp. Every lane gets the result, with the same bits if op(a, b) is op(b, a).
template <typename A, class Op>
__device__ __forceinline__ A warp_reduce(A value, Op op) {
  BP_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const A other = shuffle_xor(value, mask);
    value = (threadIdx.x & static_cast<unsigned>(mask)) == 0 ? op(value, other) : op(other, value);
  }
  return value;
}

// Returns the sum of `value` in the lanes up to this one.
__device__ __forceinline__ uint32_t warp_running_sum(uint32_t value) {
  const uint32_t lane = threadIdx.x % kWarpSize;
  BP_UNROLL
  for (uint32_t distance = 1; distance < kWarpSize; distance *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// Returns a bit for each lane whose `value`, a number of kBits bits, is that of this lane.
template <int kBits>
__device__ __forceinline__ uint32_t lanes_with_same(uint32_t value) {
  uint32_t lanes = kAllLanes;
  BP_UNROLL
  for (int bit = 0; bit < kBits; ++bit) {
    const bool is_set = (value >> bit & 1) != 0;
    const uint32_t with = __ballot_sync(kAllLanes, is_set);
    lanes &= is_set ? with : ~with;
  }
  return lanes;
}

// Stores a value that other threads may store there at the same time, if all store the same one.
template <typename T>
__device__ __forceinline__ void store_same(T* at, T value) {
  *static_cast<volatile T*>(at) = value;
}

// Reduces over a block of whole warps. All threads call it, and every thread gets the result.
template <typename A, class Op>
__device__ __forceinline__ A block_reduce(A value, Op op, A identity) {
  __shared__ A parts[kWarpSize];
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  value = warp_reduce(value, op);
  if (blockDim.x == kWarpSize) return value;
  __syncthreads();  // An earlier call may still use `parts`.
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarpSize ? parts[lane] : identity;
  return warp_reduce(value, op);
}

}  // namespace bp::cuda
