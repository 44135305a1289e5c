// Norms over the last axis, or over groups of channels.
#include "lower.h"

namespace bpg {
namespace {

template <typename Args>
void norm_rows(Emitter& e, const ggml_tensor* node, uint32_t op) {
  Args args{};
  args.x = e.arg(e.tensor(node->src[0]));
  args.y = e.arg(e.tensor(node));
  args.normalized_ndim = 1;
  args.eps = float_param(node, 0);
  e.launch(op, args);
}

}  // namespace

void lower_rms_norm(Emitter& e, const ggml_tensor* node) {
  norm_rows<bp_rms_norm_args>(e, node, BP_OP_RMS_NORM);
}

void lower_norm(Emitter& e, const ggml_tensor* node) {
  norm_rows<bp_layer_norm_args>(e, node, BP_OP_LAYER_NORM);
}

void lower_group_norm(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]);
  bp_group_norm_args args{};
  args.groups = int_param(node, 0);
  if (x.shape[1] % args.groups != 0) throw Refusal("the groups of channels are not of one size");
  args.x = e.arg(x);
  args.y = e.arg(e.tensor(node));
  args.eps = float_param(node, 1);
  e.launch(BP_OP_GROUP_NORM, args);
}

void lower_l2_norm(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]);
  const View size = e.unary(BP_OP_SQRT, e.sum(e.unary(BP_OP_SQUARE, x), {3}));
  const View divisor = e.binary(BP_OP_MAXIMUM, size, float_param(node, 0));
  e.binary(BP_OP_DIV, x, expand_to(divisor, x.dims()), e.tensor(node));
}

void lower_rms_norm_back(Emitter& e, const ggml_tensor* node) {
  const View grad = e.tensor(node->src[0]), x = e.tensor(node->src[1]), y = e.tensor(node);
  const View mean = e.binary(BP_OP_MUL, e.sum(e.unary(BP_OP_SQUARE, x), {3}), 1.0 / x.shape[3]);
  const View rstd = e.unary(BP_OP_RSQRT, e.binary(BP_OP_ADD, mean, float_param(node, 0)));
  bp_rms_norm_backward_args args{};
  args.grad_y = e.arg(grad);
  args.x = e.arg(x);
  args.rstd = e.arg(squeeze(rstd, 3));
  args.grad_x = e.arg(y);
  args.normalized_ndim = 1;
  args.eps = float_param(node, 0);
  e.launch(BP_OP_RMS_NORM_BACKWARD, args);
}

}  // namespace bpg
