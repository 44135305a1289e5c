// Ops of one tensor, element by element.
#include "lower.h"

namespace bpg {
namespace {

// One op of the library for one of ggml.
uint32_t single_op(ggml_unary_op op) {
  switch (op) {
    case GGML_UNARY_OP_ABS:
      return BP_OP_ABS;
    case GGML_UNARY_OP_SGN:
      return BP_OP_SIGN;
    case GGML_UNARY_OP_NEG:
      return BP_OP_NEG;
    case GGML_UNARY_OP_TANH:
      return BP_OP_TANH;
    case GGML_UNARY_OP_RELU:
      return BP_OP_RELU;
    case GGML_UNARY_OP_SIGMOID:
      return BP_OP_SIGMOID;
    case GGML_UNARY_OP_SILU:
      return BP_OP_SILU;
    case GGML_UNARY_OP_HARDSWISH:
      return BP_OP_HARDSWISH;
    case GGML_UNARY_OP_HARDSIGMOID:
      return BP_OP_HARDSIGMOID;
    case GGML_UNARY_OP_EXP:
      return BP_OP_EXP;
    case GGML_UNARY_OP_EXPM1:
      return BP_OP_EXPM1;
    case GGML_UNARY_OP_SOFTPLUS:
      return BP_OP_SOFTPLUS;
    case GGML_UNARY_OP_FLOOR:
      return BP_OP_FLOOR;
    case GGML_UNARY_OP_CEIL:
      return BP_OP_CEIL;
    case GGML_UNARY_OP_TRUNC:
      return BP_OP_TRUNC;
    default:
      return 0;
  }
}

uint32_t single_op(ggml_op op) {
  switch (op) {
    case GGML_OP_SQR:
      return BP_OP_SQUARE;
    case GGML_OP_SQRT:
      return BP_OP_SQRT;
    case GGML_OP_LOG:
      return BP_OP_LOG;
    case GGML_OP_SIN:
      return BP_OP_SIN;
    default:
      return BP_OP_COS;
  }
}

// ggml rounds halves away from zero.
void round_away(Emitter& e, const View& x, const View& y) {
  const View whole = e.unary(BP_OP_TRUNC, x);
  const View rest = e.unary(BP_OP_ABS, e.unary(BP_OP_FRAC, x));
  const View is_up = e.cast(e.compare(BP_OP_GE, rest, 0.5), x.dtype);
  const View step = e.binary(BP_OP_MUL, is_up, e.unary(BP_OP_SIGN, x));
  e.binary(BP_OP_ADD, whole, step, y);
}

void xielu(Emitter& e, const ggml_tensor* node, const View& x, const View& y) {
  const float alpha_n = float_param(node, 1), alpha_p = float_param(node, 2);
  const float beta = float_param(node, 3), eps = float_param(node, 4);
  const View line = e.binary(BP_OP_MUL, x, beta);
  const View square = e.binary(BP_OP_MUL, e.unary(BP_OP_SQUARE, x), alpha_p);
  const View limited = e.unary(BP_OP_EXPM1, e.binary(BP_OP_MINIMUM, x, eps));
  const View curve = e.binary(BP_OP_MUL, e.binary(BP_OP_SUB, limited, x), alpha_n);
  const View part = e.where(e.compare(BP_OP_GT, x, 0), square, curve);
  e.binary(BP_OP_ADD, part, line, y);
}

}  // namespace

void emit_gelu(Emitter& e, const View& x, bool is_tanh, const View& y) {
  bp_gelu_args args{};
  args.x = e.arg(x);
  args.y = e.arg(y);
  args.approximation = is_tanh ? BP_GELU_APPROXIMATION_TANH : BP_GELU_APPROXIMATION_NONE;
  e.launch(BP_OP_GELU, args);
}

View emit_gelu_quick(Emitter& e, const View& x, double alpha) {
  const View gate = e.unary(BP_OP_SIGMOID, e.binary(BP_OP_MUL, x, alpha));
  return e.binary(BP_OP_MUL, gate, x);
}

void lower_unary(Emitter& e, const ggml_tensor* node) {
  const ggml_unary_op op = ggml_get_unary_op(node);
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  if (const uint32_t single = single_op(op); single != 0) return e.unary(single, x, y);
  switch (op) {
    case GGML_UNARY_OP_STEP:
      return e.copy(e.compare(BP_OP_GT, x, 0), y);
    case GGML_UNARY_OP_ELU:
      return e.binary(BP_OP_ELU, x, 1.0, y);
    case GGML_UNARY_OP_GELU:
      return emit_gelu(e, x, true, y);
    case GGML_UNARY_OP_GELU_ERF:
      return emit_gelu(e, x, false, y);
    default:
      break;
  }
  // Several launches round once, at the end.
  const View wide = e.cast(x, BP_F32);
  const View result = y.dtype == BP_F32 ? y : e.temporary(BP_F32, y.dims());
  switch (op) {
    case GGML_UNARY_OP_GELU_QUICK:
      e.copy(emit_gelu_quick(e, wide, 1.702), result);
      break;
    case GGML_UNARY_OP_ROUND:
      round_away(e, wide, result);
      break;
    case GGML_UNARY_OP_XIELU:
      xielu(e, node, wide, result);
      break;
    default:
      throw Refusal("the unary op is not mapped");
  }
  if (!same_elements(result, y)) e.copy(result, y);
}

void lower_function(Emitter& e, const ggml_tensor* node) {
  e.unary(single_op(node->op), e.tensor(node->src[0]), e.tensor(node));
}

void lower_scale(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  const float scale = float_param(node, 0), bias = float_param(node, 1);
  if (bias == 0) return e.binary(BP_OP_MUL, x, scale, y);
  e.binary(BP_OP_ADD, e.binary(BP_OP_MUL, x, scale), bias, y);
}

void lower_clamp(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  const View low = e.binary(BP_OP_MAXIMUM, x, float_param(node, 0));
  e.binary(BP_OP_MINIMUM, low, float_param(node, 1), y);
}

void lower_leaky_relu(Emitter& e, const ggml_tensor* node) {
  e.binary(BP_OP_LEAKY_RELU, e.tensor(node->src[0]), float_param(node, 0), e.tensor(node));
}

void lower_fill(Emitter& e, const ggml_tensor* node) {
  e.fill(e.tensor(node), float_param(node, 0));
}

void lower_silu_back(Emitter& e, const ggml_tensor* node) {
  bp_silu_backward_args args{};
  args.grad_y = e.arg(e.tensor(node->src[0]));
  args.x = e.arg(e.tensor(node->src[1]));
  args.grad_x = e.arg(e.tensor(node));
  e.launch(BP_OP_SILU_BACKWARD, args);
}

}  // namespace bpg
