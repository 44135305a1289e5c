#include "runtime/nn/layers.hpp"

#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/nn.hpp"
#include "backplane/runtime/ops.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::nn {
namespace {

// Returns a tensor that is uniform in [-bound, bound).
Tensor uniform_within(IntList shape, double bound) {
  const NoGradGuard no_grad;
  return uniform(shape, BP_F32) * (2 * bound) - bound;
}

}  // namespace

void check_positive(const char* layer, const char* argument, int64_t value) {
  if (value >= 1) return;
  throw Error(BP_INVALID_ARGUMENT, std::string(layer) + ": " + argument + " is " +
                                       std::to_string(value) + "; allowed: from 1");
}

Linear::Linear(int64_t in_features, int64_t out_features, bool has_bias, Activation activation)
    : activation_(activation) {
  check_positive("Linear", "in_features", in_features);
  check_positive("Linear", "out_features", out_features);
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  weight_ = add_parameter("weight", uniform_within({out_features, in_features}, bound));
  if (has_bias) bias_ = add_parameter("bias", uniform_within({out_features}, bound));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_, activation_); }

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
               const Conv2dOptions& options)
    : options_(options) {
  check_positive("Conv2d", "in_channels", in_channels);
  check_positive("Conv2d", "out_channels", out_channels);
  check_positive("Conv2d", "kernel_size", kernel_size);
  check_positive("Conv2d", "groups", options.groups);
  if (in_channels % options.groups != 0) {
    throw Error(BP_INVALID_ARGUMENT, "Conv2d: in_channels is " + std::to_string(in_channels) +
                                         "; allowed: multiples of groups, which is " +
                                         std::to_string(options.groups));
  }
  if (out_channels % options.groups != 0) {
    throw Error(BP_INVALID_ARGUMENT, "Conv2d: out_channels is " + std::to_string(out_channels) +
                                         "; allowed: multiples of groups, which is " +
                                         std::to_string(options.groups));
  }
  const int64_t depth = in_channels / options.groups;
  const double bound = 1 / std::sqrt(static_cast<double>(depth * kernel_size * kernel_size));
  weight_ = add_parameter("weight",
                          uniform_within({out_channels, depth, kernel_size, kernel_size}, bound));
  if (options.has_bias) bias_ = add_parameter("bias", uniform_within({out_channels}, bound));
}

Tensor Conv2d::forward(const Tensor& x) {
  const auto& [stride, padding, dilation, groups, has_bias] = options_;
  return convolution(x, weight_, bias_, {stride, stride}, {padding, padding, padding, padding},
                     {dilation, dilation}, groups);
}

Embedding::Embedding(int64_t num_embeddings, int64_t width, double deviation) {
  check_positive("Embedding", "num_embeddings", num_embeddings);
  check_positive("Embedding", "width", width);
  weight_ =
      add_parameter("weight", uniform_within({num_embeddings, width}, deviation * std::sqrt(3.0)));
}

Tensor Embedding::forward(const Tensor& indices) { return embedding(weight_, indices); }

Dropout::Dropout(double p) : p_(p) {
  if (p >= 0 && p <= 1) return;
  throw Error(BP_INVALID_ARGUMENT, "Dropout: p is " + short_text(p) + "; allowed: 0 to 1");
}

Tensor Dropout::forward(const Tensor& x) { return is_training() && p_ > 0 ? dropout(x, p_) : x; }

Tensor Relu::forward(const Tensor& x) { return relu(x); }

Tensor Gelu::forward(const Tensor& x) { return gelu(x, approximation_); }

Tensor Silu::forward(const Tensor& x) { return silu(x); }

LayerNorm::LayerNorm(int64_t width, double eps, bool has_bias) : eps_(eps) {
  check_positive("LayerNorm", "width", width);
  weight_ = add_parameter("weight", ones({width}, BP_F32));
  if (has_bias) bias_ = add_parameter("bias", zeros({width}, BP_F32));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight_, bias_, 1, eps_); }

RmsNorm::RmsNorm(int64_t width, double eps) : eps_(eps) {
  check_positive("RmsNorm", "width", width);
  weight_ = add_parameter("weight", ones({width}, BP_F32));
}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, weight_, 1, eps_); }

Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool(x, {kernel_size_, kernel_size_}, {kernel_size_, kernel_size_});
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> layers) : layers_(std::move(layers)) {
  for (size_t i = 0; i < layers_.size(); ++i) add_module(std::to_string(i), layers_[i]);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const std::shared_ptr<Module>& layer : layers_) y = (*layer)(y);
  return y;
}

}  // namespace bp::nn
