// Computes the norms of channels. The statistics of a group or a channel are computed by pieces
// (moments-inl.hpp), and its result is written while its elements are in the caches. If channels
// are rows, a row has one center, factor and shift. Short channels of a sample are one row with a
// vector of each.
#include <cmath>

#include "backends/host_kernels/channel_norm.hpp"
#include "backends/host_kernels/dtypes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/channel_norm_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/moments-inl.hpp"
#include "backends/host_kernels/row_store-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
class Runner {
 public:
  using C = Compute<T>;
  using Tag = ComputeTag<T>;

  explicit Runner(const ChannelNormRows& norm)
      : norm_(norm), shape_(norm.shape), centers_(reinterpret_cast<C*>(norm.weights)) {
    factors_ = centers_ + shape_.weight_count();
    shifts_ = factors_ + shape_.weight_count();
    const int64_t elements = shape_.samples * shape_.channels * shape_.places;
    is_streamed_ = 2 * elements * int64_t{sizeof(T)} >= kStreamBytes && row_length() >= kBlock &&
                   norm.x.template at<T>(0) != norm.y.template at<T>(0);
  }

  void run(int threads) const {
    switch (shape_.statistics) {
      case Statistics::kOfGroup:
        return run_groups(threads);
      case Statistics::kOfChannel:
        return shape_.are_channels_rows() ? run_channels(threads) : run_columns(threads);
      case Statistics::kGiven:
        return run_given(threads);
    }
  }

 private:
  // The elements that are written with one call.
  int64_t row_length() const {
    return shape_.are_channels_rows() ? shape_.places : shape_.weight_count() / shape_.groups;
  }

  // Sets the weights of a channel, which are repeated if channels share a row.
  void set_weights(int64_t channel, C center, C factor) const {
    const int64_t width = shape_.width(), at = channel * width;
    std::fill_n(centers_ + at, width, center);
    std::fill_n(factors_ + at, width, factor);
    const auto* const beta = reinterpret_cast<const T*>(norm_.beta);
    std::fill_n(shifts_ + at, width, beta == nullptr ? C{0} : widen(beta[channel]));
  }

  C gamma_of(int64_t channel) const {
    const auto* const gamma = reinterpret_cast<const T*>(norm_.gamma);
    return gamma == nullptr ? C{1} : widen(gamma[channel]);
  }

  C rstd_of(double variance) const { return static_cast<C>(1 / std::sqrt(variance + norm_.eps)); }

  // Stores the statistics of a group or a channel, and sets the weights of the channel.
  void end_channel(int64_t channel, const Moments& moments) const {
    const auto mean = static_cast<C>(moments.mean());
    if (norm_.has_mean) *norm_.mean.template at<C>(channel) = mean;
    if (norm_.has_spread) {
      *norm_.spread.template at<C>(channel) = static_cast<C>(moments.variance());
    }
    set_weights(channel, mean, rstd_of(moments.variance()) * gamma_of(channel));
  }

  // Writes a row whose elements have the same weights. The row is at least one vector, and its last
  // vector begins before the one before it ends. It is loaded first, because y may be x.
  void write_channel(const T* x, T* y, C center, C factor, C shift) const {
    const Tag d;
    const auto c = hn::Set(d, center), f = hn::Set(d, factor), s = hn::Set(d, shift);
    const auto value = [&](auto v) HWY_ATTR { return hn::MulAdd(hn::Sub(v, c), f, s); };
    const int64_t n = shape_.places;
    if (is_streamed_) {
      store_row(y, n, true,
                [&](auto lanes, int64_t i) HWY_ATTR { return value(lanes.load(x + i)); });
      return;
    }
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto last = load_lanes(d, x + n - lanes);
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      store_two(value(load_lanes(d, x + i)), value(load_lanes(d, x + i + lanes)), d, y + i);
    }
    if (i + lanes <= n) {
      store_lanes(value(load_lanes(d, x + i)), d, y + i);
      i += lanes;
    }
    if (i < n) store_lanes(value(last), d, y + n - lanes);
  }

  // Writes n elements of a row from weight number `at` on.
  void write_elements(const T* x, T* y, int64_t at, int64_t n) const {
    const C *const centers = centers_ + at, *const factors = factors_ + at,
                   *const shifts = shifts_ + at;
    store_row(y, n, is_streamed_, [&](auto lanes, int64_t i) HWY_ATTR {
      const auto centered = hn::Sub(lanes.load(x + i), lanes.load(centers + i));
      return hn::MulAdd(centered, lanes.load(factors + i), lanes.load(shifts + i));
    });
  }

  const T* x_of(int64_t sample, int64_t channel) const {
    return norm_.x.template at<const T>(sample) + channel * shape_.places;
  }
  T* y_of(int64_t sample, int64_t channel) const {
    return norm_.y.template at<T>(sample) + channel * shape_.places;
  }

  void run_groups(int threads) const {
    for (int64_t c = 0; c < shape_.channels; ++c) set_weights(c, C{0}, gamma_of(c));
    const int64_t channels = shape_.channels / shape_.groups, row = channels * shape_.places;
    const int64_t rows = shape_.samples * shape_.groups;
    parallel_for(threads, rows, channel_norm_grain(row), [&](int64_t begin, int64_t end) {
      int64_t sample = begin / shape_.groups, first = begin % shape_.groups * channels;
      for (int64_t i = begin; i < end; ++i, first += channels) {
        if (first == shape_.channels && channels != 0) {
          ++sample;
          first = 0;
        }
        const T* const x = x_of(sample, first);
        const Moments moments = moments_of_rows<T>(1, row, [&](int64_t) { return x; });
        const auto mean = static_cast<C>(moments.mean());
        const C rstd = rstd_of(moments.variance());
        if (norm_.has_mean) *norm_.mean.template at<C>(i) = mean;
        if (norm_.has_spread) *norm_.spread.template at<C>(i) = rstd;
        write_group(x, y_of(sample, first), first, mean, rstd);
      }
      hwy::FlushStream();
    });
  }

  // Writes a group, whose first channel is `first`.
  void write_group(const T* x, T* y, int64_t first, C mean, C rstd) const {
    const int64_t channels = shape_.channels / shape_.groups;
    if (shape_.are_channels_rows()) {
      for (int64_t c = 0; c < channels; ++c) {
        write_channel(x + c * shape_.places, y + c * shape_.places, mean,
                      rstd * factors_[first + c], shifts_[first + c]);
      }
      return;
    }
    const C *const factors = factors_ + first * shape_.places, *const shifts =
                                                                   shifts_ + first * shape_.places;
    const auto center = hn::Set(Tag(), mean), scale = hn::Set(Tag(), rstd);
    store_row(y, channels * shape_.places, is_streamed_, [&](auto lanes, int64_t i) HWY_ATTR {
      const auto unit = hn::Mul(hn::Sub(lanes.load(x + i), center), scale);
      return hn::MulAdd(unit, lanes.load(factors + i), lanes.load(shifts + i));
    });
  }

  void run_channels(int threads) const {
    const int64_t elements = shape_.samples * shape_.places;
    parallel_for(threads, shape_.channels, channel_norm_grain(elements),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t c = begin; c < end; ++c) {
                     const auto at = [&](int64_t sample) { return x_of(sample, c); };
                     end_channel(c, moments_of_rows<T>(shape_.samples, shape_.places, at));
                     for (int64_t n = 0; n < shape_.samples; ++n) write_channel_of(n, c);
                   }
                   hwy::FlushStream();
                 });
  }

  void write_channel_of(int64_t sample, int64_t channel) const {
    write_channel(x_of(sample, channel), y_of(sample, channel), centers_[channel],
                  factors_[channel], shifts_[channel]);
  }

  // The statistics of short channels, which are columns of a matrix of the samples.
  void run_columns(int threads) const {
    const int64_t width = shape_.width();
    const int64_t together = width == 0 ? shape_.channels : kMomentColumns / width;
    const int64_t tiles = together == 0 ? 0 : (shape_.channels + together - 1) / together;
    parallel_for(threads, tiles, 1, [&](int64_t begin, int64_t end) {
      Moments columns[kMomentColumns];
      for (int64_t first = begin * together; first < std::min(shape_.channels, end * together);
           first += together) {
        const int64_t count = std::min(together, shape_.channels - first);
        const auto at = [&](int64_t sample) { return x_of(sample, first); };
        moments_of_columns<T>(shape_.samples, count * width, at, columns);
        for (int64_t c = 0; c < count; ++c) {
          Moments moments;
          for (int64_t i = 0; i < width; ++i) moments.join(columns[c * width + i]);
          end_channel(first + c, moments);
        }
      }
    });
    write_samples(threads);
  }

  // Writes all samples, whose channels share a row, in blocks.
  void write_samples(int threads) const {
    constexpr int64_t kWriteBlock = 4096;
    const int64_t row = shape_.weight_count(), blocks = (row + kWriteBlock - 1) / kWriteBlock;
    parallel_for(threads, shape_.samples * blocks, channel_norm_grain(std::min(row, kWriteBlock)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t sample = i / blocks, at = i % blocks * kWriteBlock;
                     write_elements(x_of(sample, 0) + at, y_of(sample, 0) + at, at,
                                    std::min(kWriteBlock, row - at));
                   }
                   hwy::FlushStream();
                 });
  }

  void run_given(int threads) const {
    const auto* const mean = reinterpret_cast<const C*>(norm_.given_mean);
    const auto* const variance = reinterpret_cast<const C*>(norm_.given_variance);
    for (int64_t c = 0; c < shape_.channels; ++c) {
      set_weights(c, mean[c], rstd_of(static_cast<double>(variance[c])) * gamma_of(c));
    }
    if (!shape_.are_channels_rows()) return write_samples(threads);
    const int64_t rows = shape_.samples * shape_.channels;
    parallel_for(threads, rows, channel_norm_grain(shape_.places), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        write_channel_of(i / shape_.channels, i % shape_.channels);
      }
      hwy::FlushStream();
    });
  }

  const ChannelNormRows& norm_;
  const ChannelShape& shape_;
  C *centers_, *factors_, *shifts_;
  bool is_streamed_;
};

void run_any(const ChannelNormRows& norm, int thread_count) {
  with_float(norm.shape.dtype, [&]<typename T>(T) { Runner<T>(norm).run(thread_count); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_any);

}  // namespace

void run_channel_norm(const ChannelNormRows& norm, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_any)(norm, thread_count);
}

}  // namespace bp::kernels
#endif
