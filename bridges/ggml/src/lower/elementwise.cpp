// ADD, SUB, MUL, DIV, unary ops, gated units, and what is done to each element by itself.
#include "lower.h"

namespace bpg {
namespace {

uint32_t binary_op(ggml_op op) {
  switch (op) {
    case GGML_OP_SUB:
      return BP_OP_SUB;
    case GGML_OP_MUL:
      return BP_OP_MUL;
    case GGML_OP_DIV:
      return BP_OP_DIV;
    default:
      return BP_OP_ADD;
  }
}

}  // namespace

void repeat_like(View& b, View& a, View& y) {
  for (int axis = static_cast<int>(a.ndim) - 1; axis >= 0; --axis) {
    const int64_t whole = a.shape[axis], part = b.shape[axis];
    if (part == whole) continue;
    if (part != 1) {
      if (whole % part != 0) throw Refusal("a tensor is not repeated a whole number of times");
      a = split(a, axis, part);
      y = split(y, axis, part);
      b = unsqueeze(b, axis);
    }
    b = expand(b, axis, a.shape[axis]);
  }
}

void lower_binary(Emitter& e, const ggml_tensor* node) {
  View a = e.tensor(node->src[0]), b = e.tensor(node->src[1]), y = e.tensor(node);
  const bool is_one_dtype = a.dtype == b.dtype && a.dtype == y.dtype;
  // Mixed dtypes are computed in f32 and rounded once.
  const bp_dtype dtype = is_one_dtype ? a.dtype : bp_dtype{BP_F32};
  b = e.cast(b, dtype);
  a = e.cast(a, dtype);
  const View out = is_one_dtype ? y : y.dtype == dtype ? y : e.temporary(dtype, y.dims());
  View to = out;
  repeat_like(b, a, to);
  e.binary(binary_op(node->op), a, b, to);
  if (!same_elements(out, y)) e.copy(out, y);
}

}  // namespace bpg
