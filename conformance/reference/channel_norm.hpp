// Oracles of group norm and batch norm and their gradients. A tensor is (samples, channels,
// places): all axes behind the channels are places.
#pragma once

#include <span>
#include <vector>

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

// Returns the gradients, which are those of normalize_backward(). Elements with the same
// unit_of(element) share a mean; gamma has an element for each channel.
template <typename N, typename UnitOf>
NormGradients<N> channel_norm_backward(const Array<N>& grad_y, const Array<N>& x,
                                       const Optional<N>& gamma, const Array<N>& mean,
                                       const Array<N>& rstd, const UnitOf& unit_of) {
  const Channels channels(x.shape);
  const Shape weights = {channels.channels};
  NormGradients<N> result{Array<N>(x.shape), Array<N>(weights), Array<N>(weights)};
  using Lists = std::vector<std::vector<N>>;
  const auto units = static_cast<size_t>(mean.size());
  const auto count = static_cast<size_t>(channels.channels);
  Lists h_of(units), hu_of(units), g_of(count), gu_of(count);
  std::vector<N> u, h;
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t channel = channels.channel_of(i), unit = unit_of(i);
    const auto at = static_cast<size_t>(i), list = static_cast<size_t>(unit);
    u.push_back((x[i] - mean[unit]) * rstd[unit]);
    h.push_back(gamma ? grad_y[i] * (*gamma)[channel] : grad_y[i]);
    h_of[list].push_back(h[at]);
    hu_of[list].push_back(h[at] * u[at]);
    g_of[static_cast<size_t>(channel)].push_back(grad_y[i]);
    gu_of[static_cast<size_t>(channel)].push_back(grad_y[i] * u[at]);
  }
  std::vector<N> h_means, hu_means;
  for (size_t unit = 0; unit < units && x.size() != 0; ++unit) {
    h_means.push_back(mean_of(h_of[unit]));
    hu_means.push_back(mean_of(hu_of[unit]));
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<size_t>(i), unit = static_cast<size_t>(unit_of(i));
    result.x[i] = rstd[unit_of(i)] * (h[at] - h_means[unit] - u[at] * hu_means[unit]);
  }
  for (size_t channel = 0; channel < count; ++channel) {
    const auto at = static_cast<int64_t>(channel);
    result.beta[at] = sum_of(std::span<const N>(g_of[channel]));
    result.gamma[at] = sum_of(std::span<const N>(gu_of[channel]));
  }
  return result;
}

}  // namespace bp::conformance::reference
