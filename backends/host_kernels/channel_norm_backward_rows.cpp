// Computes the gradients of norms of channels. With u = (x - mean) * rstd and h = grad_y * gamma, a
// first pass over each plane sums grad_y and grad_y * u. The means of h and h * u in a unit follow
// from these sums, and so do grad_gamma and grad_beta. A second pass writes
//
//   grad_x = rstd * (h - mean(h) - u * mean(h * u))
//
// If there are enough units for all threads, a unit is written while it is in the caches.
#include <cmath>

#include "backends/host_kernels/channel_norm.hpp"
#include "backends/host_kernels/dtypes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/channel_norm_backward_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
class GradientRunner {
 public:
  using C = Compute<T>;
  using Tag = ComputeTag<T>;

  explicit GradientRunner(const ChannelNormBackwardRows& norm) : norm_(norm), shape_(norm.shape) {}

  void run(int threads) const {
    const int64_t units = shape_.units(), planes = shape_.samples * shape_.channels;
    if (units >= int64_t{2} * threads) {
      parallel_for(threads, units, channel_norm_grain(planes * shape_.places / units),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t unit = begin; unit < end; ++unit) run_unit(unit);
                   });
    } else {
      const int64_t grain = channel_norm_grain(shape_.places);
      parallel_for(threads, planes, grain, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) sum_plane(plane);
      });
      for (int64_t unit = 0; unit < units; ++unit) join_unit(unit);
      parallel_for(threads, planes, grain, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) write_plane(plane);
      });
    }
    store_of_channels();
  }

 private:
  // Calls fn(plane) for the planes of a unit, in order.
  template <typename Fn>
  void for_each_plane(int64_t unit, const Fn& fn) const {
    if (shape_.statistics == Statistics::kOfChannel) {
      for (int64_t sample = 0; sample < shape_.samples; ++sample) {
        fn(sample * shape_.channels + unit);
      }
      return;
    }
    const int64_t count = shape_.channels / shape_.groups;
    for (int64_t i = 0; i < count; ++i) fn(unit * count + i);
  }

  int64_t unit_of(int64_t plane) const {
    if (shape_.statistics == Statistics::kOfChannel) return plane % shape_.channels;
    return plane / (shape_.channels / shape_.groups);
  }

  C gamma_of(int64_t plane) const {
    const auto* const gamma = reinterpret_cast<const T*>(norm_.gamma);
    return gamma == nullptr ? C{1} : widen(gamma[plane % shape_.channels]);
  }

  C mean_of(int64_t unit) const { return *norm_.mean.template at<const C>(unit); }

  C rstd_of(int64_t unit) const {
    const C spread = *norm_.spread.template at<const C>(unit);
    if (shape_.statistics == Statistics::kOfGroup) return spread;
    return static_cast<C>(1 / std::sqrt(static_cast<double>(spread) + norm_.eps));
  }

  template <typename E>
  E* at(const RowPlaces& samples, int64_t plane) const {
    return samples.template at<E>(plane / shape_.channels) +
           plane % shape_.channels * shape_.places;
  }

  void run_unit(int64_t unit) const {
    for_each_plane(unit, [&](int64_t plane) { sum_plane(plane); });
    join_unit(unit);
    for_each_plane(unit, [&](int64_t plane) { write_plane(plane); });
  }

  void sum_plane(int64_t plane) const {
    const Tag d;
    const int64_t unit = unit_of(plane);
    const auto mean = hn::Set(d, mean_of(unit)), rstd = hn::Set(d, rstd_of(unit));
    const T *const grad_y = at<const T>(norm_.grad_y, plane), *const x =
                                                                  at<const T>(norm_.x, plane);
    double g_sum = 0, gu_sum = 0;
    for (int64_t begin = 0; begin < shape_.places; begin += kSumBlock) {
      auto g_block = hn::Zero(d), gu_block = g_block;
      for_each_lanes<T>(std::min(kSumBlock, shape_.places - begin), [&](auto lanes) HWY_ATTR {
        const auto g = lanes.load(grad_y + begin);
        const auto u = hn::Mul(hn::Sub(lanes.load(x + begin), mean), rstd);
        g_block = hn::Add(g_block, lanes.clear_rest(g));
        gu_block = hn::Add(gu_block, lanes.clear_rest(hn::Mul(g, u)));
      });
      g_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, g_block)));
      gu_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, gu_block)));
    }
    norm_.sums[2 * plane] = g_sum;
    norm_.sums[2 * plane + 1] = gu_sum;
  }

  // Computes the means of h and h * u from the sums of the planes.
  void join_unit(int64_t unit) const {
    double h_sum = 0, hu_sum = 0, count = 0;
    for_each_plane(unit, [&](int64_t plane) {
      count += static_cast<double>(shape_.places);
      const C gamma = gamma_of(plane);
      if (!std::isfinite(gamma)) return add_terms(plane, unit, h_sum, hu_sum);
      h_sum += static_cast<double>(gamma) * norm_.sums[2 * plane];
      hu_sum += static_cast<double>(gamma) * norm_.sums[2 * plane + 1];
    });
    norm_.means[2 * unit] = h_sum / count;
    norm_.means[2 * unit + 1] = hu_sum / count;
  }

  // Adds h and h * u of each element. The product of an infinite gamma and a sum is not the sum of
  // the products.
  void add_terms(int64_t plane, int64_t unit, double& h_sum, double& hu_sum) const {
    const C gamma = gamma_of(plane), mean = mean_of(unit), rstd = rstd_of(unit);
    const T *const grad_y = at<const T>(norm_.grad_y, plane), *const x =
                                                                  at<const T>(norm_.x, plane);
    for (int64_t i = 0; i < shape_.places; ++i) {
      const C h = widen(grad_y[i]) * gamma;
      h_sum += static_cast<double>(h);
      hu_sum += static_cast<double>(h * ((widen(x[i]) - mean) * rstd));
    }
  }

  void write_plane(int64_t plane) const {
    const Tag d;
    const int64_t unit = unit_of(plane);
    const auto mean = hn::Set(d, mean_of(unit)), rstd = hn::Set(d, rstd_of(unit));
    const auto gamma = hn::Set(d, gamma_of(plane));
    const auto h_mean = hn::Set(d, static_cast<C>(norm_.means[2 * unit]));
    const auto hu_mean = hn::Set(d, static_cast<C>(norm_.means[2 * unit + 1]));
    const T *const grad_y = at<const T>(norm_.grad_y, plane), *const x =
                                                                  at<const T>(norm_.x, plane);
    T* const to = at<T>(norm_.grad_x, plane);
    for_each_lanes<T>(shape_.places, [&](auto lanes) HWY_ATTR {
      const auto u = hn::Mul(hn::Sub(lanes.load(x), mean), rstd);
      const auto h = hn::Mul(lanes.load(grad_y), gamma);
      lanes.store(hn::Mul(rstd, hn::Sub(hn::Sub(h, h_mean), hn::Mul(u, hu_mean))), to);
    });
  }

  // Stores grad_gamma and grad_beta, the sums of each channel over the samples.
  void store_of_channels() const {
    auto* const grad_gamma = reinterpret_cast<T*>(norm_.grad_gamma);
    auto* const grad_beta = reinterpret_cast<T*>(norm_.grad_beta);
    for (int64_t channel = 0; channel < shape_.channels; ++channel) {
      double g_sum = 0, gu_sum = 0;
      for (int64_t sample = 0; sample < shape_.samples; ++sample) {
        const double* const sums = norm_.sums + 2 * (sample * shape_.channels + channel);
        g_sum += sums[0];
        gu_sum += sums[1];
      }
      if (grad_gamma != nullptr) grad_gamma[channel] = narrow<T>(static_cast<C>(gu_sum));
      if (grad_beta != nullptr) grad_beta[channel] = narrow<T>(static_cast<C>(g_sum));
    }
  }

  const ChannelNormBackwardRows& norm_;
  const ChannelShape& shape_;
};

void run_any(const ChannelNormBackwardRows& norm, int thread_count) {
  with_float(norm.shape.dtype, [&]<typename T>(T) { GradientRunner<T>(norm).run(thread_count); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_any);

}  // namespace

void run_channel_norm_backward(const ChannelNormBackwardRows& norm, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_any)(norm, thread_count);
}

}  // namespace bp::kernels
#endif
