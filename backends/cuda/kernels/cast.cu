// copy between dtypes. A conversion to a float rounds to nearest even once. A conversion to an
// integer drops the fraction, and a conversion to bool compares with zero.
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/movement.hpp"

namespace bp::cuda {
namespace {

template <typename To>
struct Convert {
  template <typename From>
  __host__ __device__ To operator()(From x) const {
    return narrow<To>(x);
  }
};

template <typename To, typename From>
bp_status convert(Launch& launch, const Loop& loop) {
  if constexpr (std::is_same_v<To, From>) {
    return submit_copy(launch, loop, sizeof(To));  // It converts bool to u8.
  } else {
    return submit_map<Convert<To>, To, From>(launch, Convert<To>(), loop);
  }
}

template <typename From>
bp_status convert_from(Launch& launch, const Loop& loop, bp_dtype to) {
  // with_any() treats a bool as a byte, but a value that is not zero must become 1.
  if (to == BP_BOOL) return convert<bool, From>(launch, loop);
  return with_any(to, [&]<typename To>(To) { return convert<To, From>(launch, loop); });
}

}  // namespace

bp_status submit_cast(Launch& launch, const Loop& loop, bp_dtype from, bp_dtype to) {
  return with_any(from, [&]<typename From>(From) { return convert_from<From>(launch, loop, to); });
}

}  // namespace bp::cuda
