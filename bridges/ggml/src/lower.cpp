#include "lower.h"

#include <array>
#include <cstring>

namespace bpg {
namespace {

struct Row {
  ggml_op op;
  LowerFn* function;
};

// Some functions write the result in parts, which would overwrite an input that a later part reads.
// None of them is of an op to whose result ggml gives the memory of an input, but for ROPE, whose
// parts are apart.
constexpr Row kRows[] = {
    {GGML_OP_ADD, lower_binary},
    {GGML_OP_SUB, lower_binary},
    {GGML_OP_MUL, lower_binary},
    {GGML_OP_DIV, lower_binary},
    {GGML_OP_ADD1, lower_binary},
    {GGML_OP_ADD_ID, lower_add_id},
    {GGML_OP_UNARY, lower_unary},
    {GGML_OP_SQR, lower_function},
    {GGML_OP_SQRT, lower_function},
    {GGML_OP_LOG, lower_function},
    {GGML_OP_SIN, lower_function},
    {GGML_OP_COS, lower_function},
    {GGML_OP_GLU, lower_glu},
    {GGML_OP_SCALE, lower_scale},
    {GGML_OP_CLAMP, lower_clamp},
    {GGML_OP_LEAKY_RELU, lower_leaky_relu},
    {GGML_OP_FILL, lower_fill},
    {GGML_OP_SILU_BACK, lower_silu_back},
    {GGML_OP_MUL_MAT, lower_mul_mat},
    {GGML_OP_MUL_MAT_ID, lower_mul_mat_id},
    {GGML_OP_OUT_PROD, lower_out_prod},
    {GGML_OP_CPY, lower_copy},
    {GGML_OP_CONT, lower_copy},
    {GGML_OP_DUP, lower_copy},
    {GGML_OP_CONCAT, lower_concat},
    {GGML_OP_REPEAT, lower_repeat},
    {GGML_OP_REPEAT_BACK, lower_repeat_back},
    {GGML_OP_PAD, lower_pad},
    {GGML_OP_PAD_REFLECT_1D, lower_pad_reflect},
    {GGML_OP_ROLL, lower_roll},
    {GGML_OP_DIAG, lower_diag},
    {GGML_OP_DIAG_MASK_INF, lower_diag_mask},
    {GGML_OP_DIAG_MASK_ZERO, lower_diag_mask},
    {GGML_OP_TRI, lower_tri},
    {GGML_OP_ARANGE, lower_arange},
    {GGML_OP_SET, lower_set},
    {GGML_OP_ACC, lower_set},
    {GGML_OP_GET_ROWS, lower_get_rows},
    {GGML_OP_SET_ROWS, lower_set_rows},
    {GGML_OP_NORM, lower_norm},
    {GGML_OP_RMS_NORM, lower_rms_norm},
    {GGML_OP_RMS_NORM_BACK, lower_rms_norm_back},
    {GGML_OP_L2_NORM, lower_l2_norm},
    {GGML_OP_GROUP_NORM, lower_group_norm},
    {GGML_OP_SOFT_MAX, lower_soft_max},
    {GGML_OP_SOFT_MAX_BACK, lower_soft_max_back},
    {GGML_OP_FLASH_ATTN_EXT, lower_attention},
    {GGML_OP_ROPE, lower_rope},
    {GGML_OP_ROPE_BACK, lower_rope},
    {GGML_OP_SUM, lower_sum},
    {GGML_OP_SUM_ROWS, lower_sum},
    {GGML_OP_MEAN, lower_sum},
    {GGML_OP_CUMSUM, lower_cumsum},
    {GGML_OP_ARGMAX, lower_argmax},
    {GGML_OP_ARGSORT, lower_argsort},
    {GGML_OP_TOP_K, lower_top_k},
    {GGML_OP_COUNT_EQUAL, lower_count_equal},
    {GGML_OP_SSM_CONV, lower_ssm_conv},
    {GGML_OP_IM2COL, lower_im2col},
    {GGML_OP_POOL_1D, lower_pool},
    {GGML_OP_POOL_2D, lower_pool},
    {GGML_OP_CONV_2D, lower_convolution},
    {GGML_OP_CONV_2D_DW, lower_convolution},
    {GGML_OP_CONV_3D, lower_convolution_3d},
    {GGML_OP_CONV_TRANSPOSE_1D, lower_convolution_transpose},
    {GGML_OP_CONV_TRANSPOSE_2D, lower_convolution_transpose},
    {GGML_OP_IM2COL_3D, lower_im2col_3d},
    {GGML_OP_GET_ROWS_BACK, lower_get_rows_back},
};

using Table = std::array<LowerFn*, GGML_OP_COUNT>;

const Table& table() {
  static const Table the_table = [] {
    Table made{};
    for (const Row& row : kRows) made[row.op] = row.function;
    return made;
  }();
  return the_table;
}

bool is_view_alone(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

}  // namespace

void lower(Emitter& e, const ggml_tensor* node) {
  if (is_view_alone(node->op) || ggml_is_empty(node)) return;
  LowerFn* const function = table()[node->op];
  if (function == nullptr) {
    throw Refusal(std::string(ggml_op_name(node->op)) + " is not mapped");
  }
  function(e, node);
}

View floats_of(Emitter& e, const ggml_tensor* t) {
  if (!ggml_is_quantized(t->type)) return e.tensor(t);
  const View raw = e.contiguous(e.bytes(t));
  return e.decoded(e.in_blocks(raw, t->type, {t->ne[3], t->ne[2], t->ne[1], t->ne[0]}));
}

void require_no_ties(const ggml_tensor* t) {
  if (t->type == GGML_TYPE_F32) return;
  throw Refusal(std::string(ggml_type_name(t->type)) + " is not rounded to blocks as in ggml");
}

View repeated(Emitter& e, const View& x, const Shape& shape) {
  bool is_stride_enough = true;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    is_stride_enough = is_stride_enough && (x.shape[i] == 1 || x.shape[i] == shape[i]);
  }
  if (is_stride_enough) return expand_to(x, shape);
  const View y = e.temporary(x.dtype, shape);
  View part = x, whole = y, to = y;
  repeat_like(part, whole, to);
  e.copy(part, to);
  return y;
}

float float_param(const ggml_tensor* node, int index) {
  float value;
  std::memcpy(&value, &node->op_params[index], sizeof(value));
  return value;
}

int32_t int_param(const ggml_tensor* node, int index) { return node->op_params[index]; }

}  // namespace bpg
