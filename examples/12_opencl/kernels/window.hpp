// What convolutions and pools share: windows over 1 to 3 spatial axes, which become 3 axes.
#pragma once

#include "kernels/kernels.hpp"

namespace acme_opencl {

// A program has the same struct (kWindowSource). Strides are those of the batch, the channels and
// the spatial axes, in elements.
struct Window {
  int64_t batch, channels, groups;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};
struct Strides {
  int64_t offset, at[5];
};

inline constexpr const char* kWindowSource = R"(
typedef struct {
  long batch, channels, groups;
  long in[3], out[3], kernel_size[3], stride[3], padding[3], dilation[3];
} Window;
typedef struct { long offset, at[5]; } Strides;
long place5(const Strides* s, long n, long c, long i, long j, long k) {
  return s->offset + n * s->at[0] + c * s->at[1] + i * s->at[2] + j * s->at[3] + k * s->at[4];
}
// Takes the last extent of an index.
long next(long* index, long extent) {
  const long digit = *index % extent;
  *index /= extent;
  return digit;
}
)";

// Each of 1 to 3 spatial axes, behind axes of one element.
inline void spread(std::span<const int64_t> from, int64_t (&to)[3], int64_t missing) {
  const size_t first = 3 - from.size();
  for (size_t k = 0; k < 3; ++k) to[k] = k < first ? missing : from[k - first];
}

inline Strides strides_of(const bp_tensor* t) {
  Strides s{};
  if (t == nullptr) return s;
  s.offset = grid_at({t}).offset[0];
  s.at[0] = t->strides[0], s.at[1] = t->ndim > 1 ? t->strides[1] : 0;
  for (uint32_t k = 2; k < t->ndim; ++k) s.at[k + 5 - t->ndim] = t->strides[k];
  return s;
}

// `x` has the extents of the input, and `y` those of the output.
template <typename Args>
Window window_of(const Args& args, const bp_tensor& x, const bp_tensor& y,
                 std::span<const int64_t> kernel) {
  Window w{.batch = x.shape[0], .channels = x.shape[1], .groups = 1};
  const size_t spatial = x.ndim - 2;
  spread({x.shape + 2, spatial}, w.in, 1);
  spread({y.shape + 2, spatial}, w.out, 1);
  spread(kernel, w.kernel, 1);
  spread({args.stride, spatial}, w.stride, 1);
  spread({args.padding, spatial}, w.padding, 0);
  if constexpr (requires { args.dilation; }) {
    spread({args.dilation, spatial}, w.dilation, 1);
  } else {
    spread({}, w.dilation, 1);
  }
  return w;
}

}  // namespace acme_opencl
