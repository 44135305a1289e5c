// MUL_MAT: each row of src1 with each row of src0.
#include <algorithm>

#include "lower.h"

namespace bpg {
namespace {

bp_matmul_args matmul_args(Emitter& e, const View& a, const View& b, const View& y) {
  bp_matmul_args args{};
  args.a = e.arg(a);
  args.b = e.arg(b);
  args.y = e.arg(y);
  return args;
}

// A kernel takes the weight in its blocks, or it is decoded first.
void multiply_matrix(Emitter& e, const View& x, const View& weight, const View& y) {
  bp_linear_args args{};
  args.x = e.arg(x);
  args.weight = e.arg(weight);
  args.y = e.arg(y);
  args.activation = BP_LINEAR_ACTIVATION_NONE;
  if (!e.can_launch(BP_OP_LINEAR, args)) args.weight = e.arg(e.decoded(weight));
  args.x = e.arg(x);
  args.y = e.arg(y);
  e.launch(BP_OP_LINEAR, args);
}

// A batch of src0 serves `repeat` batches of src1 along the axis. Both get two axes in its place,
// and src0 is repeated along the second one by a stride of 0.
void share_batches(View& weight, View& x, View& y, int axis) {
  const int64_t few = weight.shape[axis], many = x.shape[axis];
  if (few == many) return;
  const int64_t repeat = many / few;
  x = split(x, axis, repeat);
  y = split(y, axis, repeat);
  weight = expand(unsqueeze(weight, axis + 1), axis + 1, repeat);
}

void drop_single_axes(View& weight, View& x, View& y) {
  for (int axis = static_cast<int>(x.ndim) - 3; axis >= 0; --axis) {
    if (x.shape[axis] != 1) continue;
    weight = squeeze(weight, axis);
    x = squeeze(x, axis);
    y = squeeze(y, axis);
  }
}

// Batches that share a weight are rows of one product, if the rows follow each other in x and y.
void join_rows(View& weight, View& x, View& y) {
  while (x.ndim > 2) {
    const int axis = static_cast<int>(x.ndim) - 3;
    if (weight.strides[axis] != 0) return;
    View joined_x = x, joined_y = y;
    if (!merge(joined_x, axis) || !merge(joined_y, axis)) return;
    x = joined_x;
    y = joined_y;
    weight = squeeze(weight, axis);
  }
}

}  // namespace

// Dtypes that no kernel takes together are multiplied in f32.
void emit_product(Emitter& e, View weight, View x, View y) {
  if (x.ndim == 4) {
    for (const int axis : {1, 0}) share_batches(weight, x, y, axis);
  }
  drop_single_axes(weight, x, y);
  join_rows(weight, x, y);
  bp_matmul_args args = matmul_args(e, x, swap_last(weight), y);
  if ((weight.dtype != BP_F32 || x.dtype != BP_F32) && !e.can_launch(BP_OP_MATMUL, args)) {
    x = e.cast(x, BP_F32);
    weight = e.cast(weight, BP_F32);
  }
  args = matmul_args(e, x, swap_last(weight), y);
  e.launch(BP_OP_MATMUL, args);
}

namespace {

// Merges the axes before the last one, as far as both views allow.
void join_batches(View& x, View& y) {
  for (int axis = static_cast<int>(x.ndim) - 3; axis >= 0; --axis) {
    View joined_x = x, joined_y = y;
    if (!merge(joined_x, axis) || !merge(joined_y, axis)) continue;
    x = joined_x;
    y = joined_y;
  }
}

// The matrix (i3, i2) of a tensor in blocks. If its rows have gaps, they are copied together.
View matrix_in_blocks(Emitter& e, const ggml_tensor* t, int64_t i3, int64_t i2) {
  const Shape shape{t->ne[1], t->ne[0]};
  if (t->nb[1] == ggml_row_size(t->type, t->ne[0])) {
    return e.blocks(t, i3 * t->nb[3] + i2 * t->nb[2], shape);
  }
  View bytes = slice(slice(e.bytes(t), 0, i3, i3 + 1), 1, i2, i2 + 1);
  bytes = e.contiguous(bytes);
  return e.in_blocks(bytes, t->type, shape);
}

void multiply_blocks(Emitter& e, const ggml_tensor* node) {
  const ggml_tensor* const weight = node->src[0];
  const View x = e.cast(e.tensor(node->src[1]), BP_F32), y = e.tensor(node);
  const int64_t repeat_2 = x.shape[1] / weight->ne[2], repeat_3 = x.shape[0] / weight->ne[3];
  for (int64_t i3 = 0; i3 < weight->ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < weight->ne[2]; ++i2) {
      const auto part = [&](const View& all) {
        const View outer = slice(all, 0, i3 * repeat_3, (i3 + 1) * repeat_3);
        return slice(outer, 1, i2 * repeat_2, (i2 + 1) * repeat_2);
      };
      View rows = part(x), out = part(y);
      join_batches(rows, out);
      multiply_matrix(e, rows, matrix_in_blocks(e, weight, i3, i2), out);
    }
  }
}

}  // namespace

void emit_matrix_product(Emitter& e, const ggml_tensor* weights, int64_t index, const View& x,
                         const View& y) {
  if (ggml_is_quantized(weights->type)) {
    return multiply_matrix(e, x, matrix_in_blocks(e, weights, 0, index), y);
  }
  const View all = squeeze(e.tensor(weights), 0);
  emit_product(e, squeeze(slice(all, 0, index, index + 1), 0), x, y);
}

void lower_mul_mat(Emitter& e, const ggml_tensor* node) {
  if (ggml_is_quantized(node->src[0]->type)) return multiply_blocks(e, node);
  emit_product(e, e.tensor(node->src[0]), e.tensor(node->src[1]), e.tensor(node));
}

// Row i of the result is column i of src1 with each column of src0.
void lower_out_prod(Emitter& e, const ggml_tensor* node) {
  emit_product(e, swap_last(floats_of(e, node->src[0])), swap_last(e.tensor(node->src[1])),
               e.tensor(node));
}

}  // namespace bpg
