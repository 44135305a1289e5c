#include "backends/host_kernels/depthwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/depthwise.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "backends/host_kernels/window_band-inl.hpp"

#ifndef BACKPLANE_CPU_DEPTHWISE_PLAN
#define BACKPLANE_CPU_DEPTHWISE_PLAN
namespace bp::kernels {
namespace {

struct Depthwise {
  explicit Depthwise(const Convolution& c) : x(planes(c.x)), y(planes(c.y)) {
    for (int i = 0; i < c.axes; ++i) {
      const auto from = static_cast<size_t>(i), to = from + 3 - static_cast<size_t>(c.axes);
      window.kernel[to] = c.kernel[from];
      window.stride[to] = c.stride[from];
      window.low[to] = c.low[from];
      window.dilation[to] = c.dilation[from];
      weight_stride[to] = c.weight.strides[2 + from];
    }
    weight = reinterpret_cast<const float*>(c.weight.address);
    channel_stride = c.weight.strides[0];
    if (!c.has_bias) return;
    bias = reinterpret_cast<const float*>(c.bias.address);
    bias_stride = c.bias.strides[0];
  }

  int64_t taps() const { return window.kernel[1] * window.kernel[2]; }
  // Returns the number of floats that a thread needs: the weight of a channel, and a band.
  int64_t elements() const {
    return taps() + BandSizes(window, y.extent).elements() + BandSizes::kSpare;
  }
  uint64_t thread_bytes() const { return plane_memory_bytes(elements(), BP_F32); }

  static Planes planes(const View& view) {
    Planes planes;
    planes.address = view.address;
    planes.item_size_bytes = sizeof(float);
    planes.channels = view.shape[1];
    planes.batch_stride = view.strides[0];
    planes.channel_stride = view.strides[1];
    for (uint32_t i = 2; i < view.ndim; ++i) {
      planes.extent[3 - view.ndim + i] = view.shape[i];
      planes.stride[3 - view.ndim + i] = view.strides[i];
    }
    return planes;
  }

  Window window;
  Planes x, y;
  const float *weight, *bias = nullptr;
  int64_t channel_stride, bias_stride = 0;
  std::array<int64_t, 3> weight_stride{};
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Computes a plane whose weight is not finite. Its products by the zeros of padding would be NaN.
void run_plain_plane(const Depthwise& p, const float* from, const float* weight, float bias,
                     float* to) {
  const Window& w = p.window;
  for (int64_t j = 0; j < p.y.extent[1]; ++j) {
    const Range rows = w.taps(1, j, p.x.extent[1]);
    for (int64_t k = 0; k < p.y.extent[2]; ++k) {
      const Range cols = w.taps(2, k, p.x.extent[2]);
      float sum = bias;
      for (int64_t b = rows.begin; b < rows.end; ++b) {
        const float* const row = from + w.input_of(1, j, b) * p.x.stride[1];
        for (int64_t c = cols.begin; c < cols.end; ++c) {
          sum += row[w.input_of(2, k, c) * p.x.stride[2]] * weight[b * w.kernel[2] + c];
        }
      }
      to[j * p.y.stride[1] + k * p.y.stride[2]] = sum;
    }
  }
}

void run_plane(const Depthwise& p, int64_t plane, float* memory) {
  const ComputeTag<float> d;
  const Window& w = p.window;
  const int64_t channel = plane % p.x.channels;
  float *const weight = memory, *const lines = memory + p.taps();
  bool is_finite = true;
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    weight[tap] = p.weight[channel * p.channel_stride + tap / w.kernel[2] * p.weight_stride[1] +
                           tap % w.kernel[2] * p.weight_stride[2]];
    is_finite = is_finite && std::isfinite(weight[tap]);
  }
  const float bias = p.bias == nullptr ? 0.0f : p.bias[channel * p.bias_stride];
  const auto start = hn::Set(d, bias);
  const auto* const from = reinterpret_cast<const float*>(p.x.plane(plane));
  auto* const to = reinterpret_cast<float*>(p.y.plane(plane));
  if (!is_finite) return run_plain_plane(p, from, weight, bias, to);
  for_each_band(w, p.x, from, p.y.extent, lines, [&](const Band<float>& band) HWY_ATTR {
    for_each_window_sum(
        d, w, band, start,
        [&](auto sum, auto elements, int64_t tap)
            HWY_ATTR { return hn::MulAdd(elements, hn::Set(d, weight[tap]), sum); },
        [&](auto sums, int64_t row, int64_t first, int64_t count, auto whole) HWY_ATTR {
          store_outputs<whole>(sums, d,
                               to + row * p.y.stride[1] + (band.cols.begin + first) * p.y.stride[2],
                               p.y.stride[2], count);
        });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_plane);

}  // namespace

bool is_depthwise(const Convolution& c) {
  if (c.direction != Direction::kForward || c.axes == 3) return false;
  if (c.x_dtype != BP_F32 || c.weight_dtype != BP_F32 || c.y_dtype != BP_F32) return false;
  if (c.groups == 1 || c.in_channels != 1 || c.out_channels != 1) return false;
  return BandSizes::is_fitting(Depthwise(c).window);
}

uint64_t depthwise_workspace_size_bytes(const Convolution& c, int thread_count) {
  return static_cast<uint64_t>(thread_count) * Depthwise(c).thread_bytes();
}

void run_depthwise(const Convolution& c, std::byte* workspace, int thread_count) {
  const Depthwise p(c);
  const uint64_t of_thread_bytes = p.thread_bytes();
  const auto run = HWY_DYNAMIC_DISPATCH(run_plane);
  const int64_t work = p.y.size() * p.taps();
  parallel_for(thread_count, c.batch * c.groups, plane_grain(work),
               [&](int64_t begin, int64_t end) {
                 std::byte* const memory =
                     workspace + static_cast<uint64_t>(thread_number()) * of_thread_bytes;
                 for (int64_t plane = begin; plane < end; ++plane) {
                   run(p, plane, reinterpret_cast<float*>(memory));
                 }
               });
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
