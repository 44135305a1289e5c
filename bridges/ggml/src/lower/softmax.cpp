// SOFT_MAX: of scale * x + slope * mask, over the last axis, with one more logit per head if there
// are sinks.
#include <cmath>

#include "lower.h"

namespace bpg {
namespace {

void softmax(Emitter& e, const View& x, const View& y) {
  bp_softmax_args args{};
  args.x = e.arg(x);
  args.y = e.arg(y);
  args.axis = 3;
  e.launch(BP_OP_SOFTMAX, args);
}

}  // namespace

View emit_softmax(Emitter& e, const View& x, const View& sinks) {
  if (sinks.ndim == 0) {
    const View y = e.temporary(x.dtype, x.dims());
    softmax(e, x, y);
    return y;
  }
  // The sink is the last logit, and its share is left out.
  Shape shape = x.dims();
  shape[3] = 1;
  const View all = e.cat({x, expand_to(permute(sinks, {0, 3, 1, 2}), shape)}, 3);
  const View y = e.temporary(x.dtype, all.dims());
  softmax(e, all, y);
  return slice(y, 3, 0, x.shape[3]);
}

View alibi_slopes(Emitter& e, float max_bias, int64_t heads) {
  const int power = 1 << static_cast<int>(std::floor(std::log2(static_cast<double>(heads))));
  const float m0 = std::pow(2.0f, -max_bias / power);
  const float m1 = std::pow(2.0f, -(max_bias / 2.0f) / power);
  std::vector<float> slopes;
  for (int64_t head = 0; head < heads; ++head) {
    slopes.push_back(head < power ? std::pow(m0, static_cast<float>(head + 1))
                                  : std::pow(m1, static_cast<float>(2 * (head - power) + 1)));
  }
  return e.constant(slopes);
}

View mask_of_heads(Emitter& e, const View& mask, const Shape& shape, float max_bias,
                   bp_dtype dtype) {
  // A mask has the rows of the queries, and sometimes more.
  const View used = slice(mask, 2, 0, shape[2]);
  if (max_bias <= 0) return repeated(e, e.cast(used, dtype), shape);
  View slopes;
  reshape_view(alibi_slopes(e, max_bias, shape[1]), {1, shape[1], 1, 1}, slopes);
  const View all = repeated(e, e.cast(used, BP_F32), shape);
  return e.cast(e.binary(BP_OP_MUL, all, expand_to(slopes, shape)), dtype);
}

void lower_soft_max(Emitter& e, const ggml_tensor* node) {
  const float scale = float_param(node, 0), max_bias = float_param(node, 1);
  View x = e.tensor(node->src[0]);
  const View y = e.tensor(node);
  if (scale != 1) x = e.binary(BP_OP_MUL, x, scale);
  if (node->src[1] != nullptr) {
    x = e.binary(BP_OP_ADD, x,
                 mask_of_heads(e, e.tensor(node->src[1]), x.dims(), max_bias, x.dtype));
  }
  if (node->src[2] == nullptr) return softmax(e, x, y);
  e.copy(emit_softmax(e, x, e.tensor(node->src[2])), y);
}

void lower_soft_max_back(Emitter& e, const ggml_tensor* node) {
  const float scale = float_param(node, 0);
  const View grad = e.tensor(node->src[0]), y = e.tensor(node->src[1]), out = e.tensor(node);
  const View grad_x = scale == 1 ? out : e.temporary(out.dtype, out.dims());
  bp_softmax_backward_args args{};
  args.grad_y = e.arg(grad);
  args.y = e.arg(y);
  args.grad_x = e.arg(grad_x);
  args.axis = 3;
  e.launch(BP_OP_SOFTMAX_BACKWARD, args);
  if (scale != 1) e.binary(BP_OP_MUL, grad_x, scale, out);
}

}  // namespace bpg
