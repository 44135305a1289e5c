// How each op of ggml is computed: one function per op, or family of ops.
//
// A function reads the node, makes views of its tensors, and launches what gives its result. It
// throws Refusal where a form of the op is not served. Several functions write the result in
// parts; the node's result never overlaps its inputs then (Parts in lower.cpp).
#pragma once

#include "emitter.h"

namespace bpg {

// Emits the node. Nodes that are views alone, and those without elements, emit nothing.
void lower(Emitter& e, const ggml_tensor* node);

using LowerFn = void(Emitter& e, const ggml_tensor* node);

LowerFn lower_binary, lower_unary, lower_function, lower_glu, lower_scale, lower_clamp,
    lower_leaky_relu, lower_fill, lower_silu_back;
LowerFn lower_mul_mat, lower_mul_mat_id, lower_out_prod, lower_add_id;
LowerFn lower_copy, lower_concat, lower_repeat, lower_repeat_back, lower_pad, lower_pad_reflect,
    lower_roll, lower_diag, lower_diag_mask, lower_tri, lower_arange, lower_set;
LowerFn lower_get_rows, lower_get_rows_back, lower_set_rows;
LowerFn lower_norm, lower_rms_norm, lower_rms_norm_back, lower_l2_norm, lower_group_norm;
LowerFn lower_soft_max, lower_soft_max_back, lower_attention, lower_rope;
LowerFn lower_sum, lower_cumsum, lower_argmax, lower_argsort, lower_top_k, lower_count_equal;
LowerFn lower_ssm_conv, lower_im2col, lower_im2col_3d, lower_pool, lower_convolution,
    lower_convolution_3d, lower_convolution_transpose;

// Parts of these functions that others use.
void emit_gelu(Emitter& e, const View& x, bool is_tanh, const View& y);
View emit_gelu_quick(Emitter& e, const View& x, double alpha);  // x * sigmoid(alpha * x).
// A product as that of MUL_MAT: `weight` is (..., m, k), `x` (..., n, k) and `y` (..., n, m).
void emit_product(Emitter& e, View weight, View x, View y);
// The same of matrices: `x` and `y` are rows, and the weight is matrix `index` of a tensor.
void emit_matrix_product(Emitter& e, const ggml_tensor* weights, int64_t index, const View& x,
                         const View& y);
// Row i of `y` is the row of `table` that number i names, and the other way round: the rows of `x`
// are written into the table, where the numbers may be those of the host.
void emit_get_rows(Emitter& e, const View& table, const View& numbers, const View& y);
void emit_set_rows(Emitter& e, const View& table, const View& x, const View& numbers);
void emit_set_rows(Emitter& e, const View& table, const View& x,
                   const std::vector<int32_t>& numbers);
// The softmax over the last axis. `sinks` (1, 1, 1, heads) may be an empty view.
View emit_softmax(Emitter& e, const View& x, const View& sinks);
// The factors of ALiBi, one for each head.
View alibi_slopes(Emitter& e, float max_bias, int64_t heads);
// `mask` for the scores of `shape` (batch, heads, queries, keys), times these factors.
View mask_of_heads(Emitter& e, const View& mask, const Shape& shape, float max_bias,
                   bp_dtype dtype);
// The elements of a tensor as f32 or another float; those in blocks are decoded.
View floats_of(Emitter& e, const ggml_tensor* t);
// Refuses elements of 16 bits that are to become blocks. They often lie in the middle between two
// codes, where the library rounds to even and ggml away from zero.
void require_no_ties(const ggml_tensor* t);
// `x` repeated to `shape`, whose extents are multiples of those of `x`.
View repeated(Emitter& e, const View& x, const Shape& shape);

// Repeats `b` to the shape of `a`, whose extents are multiples of those of `b`. `a` and `y` get
// more axes where `b` has more than one element and fewer than `a`.
void repeat_like(View& b, View& a, View& y);

// The parameters of a node, which ggml keeps as words.
float float_param(const ggml_tensor* node, int index);
int32_t int_param(const ggml_tensor* node, int index);

}  // namespace bpg
