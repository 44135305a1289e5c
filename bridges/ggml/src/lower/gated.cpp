// GLU: a function of the gate, times the other half. Both are halves of one tensor, or two tensors.
#include "lower.h"

namespace bpg {
namespace {

struct Halves {
  View gate, up;
};

Halves halves_of(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]);
  if (node->src[1] != nullptr) return {x, e.tensor(node->src[1])};
  const int64_t half = x.shape[3] / 2;
  const View first = slice(x, 3, 0, half), second = slice(x, 3, half, 2 * half);
  const bool is_swapped = int_param(node, 1) != 0;
  return is_swapped ? Halves{second, first} : Halves{first, second};
}

template <typename Args>
void gated(Emitter& e, uint32_t op, const Halves& x, const View& y) {
  Args args{};
  args.gate = e.arg(x.gate);
  args.up = e.arg(x.up);
  args.y = e.arg(y);
  e.launch(op, args);
}

View gelu(Emitter& e, const View& x) {
  const View y = e.temporary(x.dtype, x.dims());
  emit_gelu(e, x, true, y);
  return y;
}

Halves limited(Emitter& e, const ggml_tensor* node, const Halves& x) {
  const float limit = float_param(node, 3);
  return {e.binary(BP_OP_MINIMUM, x.gate, limit),
          e.binary(BP_OP_MINIMUM, e.binary(BP_OP_MAXIMUM, x.up, -limit), limit)};
}

void composed(Emitter& e, const ggml_tensor* node, const Halves& x, const View& y) {
  switch (ggml_get_glu_op(node)) {
    case GGML_GLU_OP_REGLU:
      return e.binary(BP_OP_MUL, e.unary(BP_OP_RELU, x.gate), x.up, y);
    case GGML_GLU_OP_GEGLU:
      return e.binary(BP_OP_MUL, gelu(e, x.gate), x.up, y);
    case GGML_GLU_OP_GEGLU_QUICK:
      return e.binary(BP_OP_MUL, emit_gelu_quick(e, x.gate, 1.702), x.up, y);
    case GGML_GLU_OP_SWIGLU_OAI: {
      const Halves cut = limited(e, node, x);
      const View gate = emit_gelu_quick(e, cut.gate, float_param(node, 2));
      return e.binary(BP_OP_MUL, gate, e.binary(BP_OP_ADD, cut.up, 1.0), y);
    }
    case GGML_GLU_OP_SWIGLU_CLAMP:
      return gated<bp_swiglu_args>(e, BP_OP_SWIGLU, limited(e, node, x), y);
    default:
      throw Refusal("the gated unit is not mapped");
  }
}

}  // namespace

void lower_glu(Emitter& e, const ggml_tensor* node) {
  const Halves given = halves_of(e, node);
  const View y = e.tensor(node);
  switch (ggml_get_glu_op(node)) {
    case GGML_GLU_OP_SWIGLU:
      return gated<bp_swiglu_args>(e, BP_OP_SWIGLU, given, y);
    case GGML_GLU_OP_GEGLU_ERF:
      return gated<bp_geglu_args>(e, BP_OP_GEGLU, given, y);
    default:
      break;
  }
  // Several launches round once, at the end.
  const Halves wide{e.cast(given.gate, BP_F32), e.cast(given.up, BP_F32)};
  const View result = y.dtype == BP_F32 ? y : e.temporary(BP_F32, y.dims());
  composed(e, node, wide, result);
  if (!same_elements(result, y)) e.copy(result, y);
}

}  // namespace bpg
