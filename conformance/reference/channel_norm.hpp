// Oracles of group norm and batch norm. A tensor is (samples, channels, places): all axes behind
// the channels are places.
#pragma once

#include <span>

#include "conformance/reference/layer_norm.hpp"

namespace bp::conformance::reference {

struct Channels {
  int64_t samples, channels, places;

  explicit Channels(std::span<const int64_t> x)
      : samples(x[0]), channels(x[1]), places(element_count(x.subspan(2))) {}

  int64_t channel_of(int64_t element) const { return element / places % channels; }
  int64_t sample_of(int64_t element) const { return element / (places * channels); }

  // Returns where the element lies in a tensor (channels, samples, places).
  int64_t place_by_channel(int64_t element) const {
    return (channel_of(element) * samples + sample_of(element)) * places + element % places;
  }
};

// Multiplies each channel by its gamma and adds its beta.
template <typename N>
void scale_channels(Array<N>& y, const Optional<N>& gamma, const Optional<N>& beta) {
  const Channels channels(y.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t channel = channels.channel_of(i);
    if (gamma) y[i] = y[i] * (*gamma)[channel];
    if (beta) y[i] = y[i] + (*beta)[channel];
  }
}

template <typename N>
Normalized<N> group_norm(const Array<N>& x, int64_t groups, const Optional<N>& gamma,
                         const Optional<N>& beta, double eps) {
  Normalized<N> result =
      normalize<N>(x, {x.shape[0], groups}, std::nullopt, std::nullopt, eps, Norm::kLayer);
  scale_channels(result.y, gamma, beta);
  return result;
}

template <typename N>
Normalized<N> batch_norm_training(const Array<N>& x, const Optional<N>& gamma,
                                  const Optional<N>& beta, double eps) {
  const Channels channels(x.shape);
  Array<N> by_channel(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) by_channel[channels.place_by_channel(i)] = x[i];
  Normalized<N> result =
      normalize<N>(by_channel, {channels.channels}, std::nullopt, std::nullopt, eps, Norm::kLayer);
  by_channel = result.y;
  for (int64_t i = 0; i < x.size(); ++i) result.y[i] = by_channel[channels.place_by_channel(i)];
  scale_channels(result.y, gamma, beta);
  return result;
}

template <typename N>
Array<N> batch_norm_inference(const Array<N>& x, const Array<N>& mean, const Array<N>& variance,
                              const Optional<N>& gamma, const Optional<N>& beta, double eps) {
  using std::sqrt;
  const Channels channels(x.shape);
  Array<N> y(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t channel = channels.channel_of(i);
    y[i] = (x[i] - mean[channel]) * (N(1) / sqrt(variance[channel] + constant<N>(eps)));
  }
  scale_channels(y, gamma, beta);
  return y;
}

}  // namespace bp::conformance::reference
