#include <cmath>

#include "backplane/runtime/nn.hpp"
#include "runtime/nn/layers.hpp"

namespace bp::nn {
namespace {

void check_divides(const char* what, int64_t value, const char* of, int64_t whole) {
  if (whole % value == 0) return;
  throw Error(BP_INVALID_ARGUMENT, std::string("MultiHeadAttention: ") + what + " is " +
                                       std::to_string(value) + "; allowed: divisors of " + of +
                                       ", which is " + std::to_string(whole));
}

// Returns (batch, length, heads * width) as (batch, heads, length, width), without a copy.
Tensor split_heads(const Tensor& x, int64_t head_count, int64_t head_width) {
  return x.view({x.shape(0), x.shape(1), head_count, head_width}).transpose(1, 2);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t width, int64_t head_count,
                                       const AttentionOptions& options)
    : head_count_(head_count),
      key_head_count_(options.key_head_count == 0 ? head_count : options.key_head_count),
      causal_(options.causal) {
  check_positive("MultiHeadAttention", "width", width);
  check_positive("MultiHeadAttention", "head_count", head_count);
  check_positive("MultiHeadAttention", "key_head_count", key_head_count_);
  check_divides("head_count", head_count, "width", width);
  check_divides("key_head_count", key_head_count_, "head_count", head_count);
  head_width_ = width / head_count;
  const int64_t key_width = key_head_count_ * head_width_;
  add_module("query", query_ = std::make_shared<Linear>(width, width, options.has_bias));
  add_module("key", key_ = std::make_shared<Linear>(width, key_width, options.has_bias));
  add_module("value", value_ = std::make_shared<Linear>(width, key_width, options.has_bias));
  add_module("out", out_ = std::make_shared<Linear>(width, width, options.has_bias));
}

Tensor MultiHeadAttention::forward(const Tensor& x) {
  if (x.ndim() != 3) {
    throw Error(BP_INVALID_ARGUMENT, "MultiHeadAttention: x has the shape " + to_string(x.shape()) +
                                         "; allowed: (batch, length, width)");
  }
  const Tensor q = split_heads((*query_)(x), head_count_, head_width_);
  const Tensor k = split_heads((*key_)(x), key_head_count_, head_width_);
  const Tensor v = split_heads((*value_)(x), key_head_count_, head_width_);
  const double scale = 1 / std::sqrt(static_cast<double>(head_width_));
  const Tensor y = sdpa(q, k, v, scale, {}, {}, causal_);
  return (*out_)(y.transpose(1, 2).reshape({x.shape(0), x.shape(1), head_count_ * head_width_}));
}

TransformerBlock::TransformerBlock(int64_t width, int64_t head_count,
                                   const TransformerBlockOptions& options) {
  const int64_t hidden = options.hidden_width == 0 ? 4 * width : options.hidden_width;
  add_module("attention_norm", attention_norm_ = std::make_shared<LayerNorm>(width));
  attention_ = std::make_shared<MultiHeadAttention>(width, head_count, options.attention);
  add_module("attention", attention_);
  add_module("hidden_norm", hidden_norm_ = std::make_shared<LayerNorm>(width));
  add_module("up", up_ = std::make_shared<Linear>(width, hidden, true, options.activation));
  add_module("down", down_ = std::make_shared<Linear>(hidden, width));
  add_module("dropout", dropout_ = std::make_shared<Dropout>(options.dropout));
}

Tensor TransformerBlock::forward(const Tensor& x) {
  const Tensor attended = x + (*dropout_)((*attention_)((*attention_norm_)(x)));
  return attended + (*dropout_)((*down_)((*up_)((*hidden_norm_)(attended))));
}

}  // namespace bp::nn
