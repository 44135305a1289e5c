#include "lower.h"

#include <cstring>

namespace bpg {
namespace {

// Writing the result in parts may overwrite an input that a later part reads, if ggml gave the
// result the memory of an input. Such an op is none of those for which ggml does that, or it writes
// its result in one launch.
LowerFn* function_of(ggml_op op) {
  switch (op) {
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
    case GGML_OP_ADD1:
      return lower_binary;
    case GGML_OP_ADD_ID:
      return lower_add_id;
    case GGML_OP_UNARY:
      return lower_unary;
    case GGML_OP_SQR:
    case GGML_OP_SQRT:
    case GGML_OP_LOG:
    case GGML_OP_SIN:
    case GGML_OP_COS:
      return lower_function;
    case GGML_OP_GLU:
      return lower_glu;
    case GGML_OP_SCALE:
      return lower_scale;
    case GGML_OP_CLAMP:
      return lower_clamp;
    case GGML_OP_LEAKY_RELU:
      return lower_leaky_relu;
    case GGML_OP_FILL:
      return lower_fill;
    case GGML_OP_SILU_BACK:
      return lower_silu_back;
    case GGML_OP_MUL_MAT:
      return lower_mul_mat;
    case GGML_OP_MUL_MAT_ID:
      return lower_mul_mat_id;
    case GGML_OP_OUT_PROD:
      return lower_out_prod;
    case GGML_OP_CPY:
    case GGML_OP_CONT:
    case GGML_OP_DUP:
      return lower_copy;
    case GGML_OP_CONCAT:
      return lower_concat;
    case GGML_OP_REPEAT:
      return lower_repeat;
    case GGML_OP_REPEAT_BACK:
      return lower_repeat_back;
    case GGML_OP_PAD:
      return lower_pad;
    case GGML_OP_PAD_REFLECT_1D:
      return lower_pad_reflect;
    case GGML_OP_ROLL:
      return lower_roll;
    case GGML_OP_DIAG:
      return lower_diag;
    case GGML_OP_DIAG_MASK_INF:
    case GGML_OP_DIAG_MASK_ZERO:
      return lower_diag_mask;
    case GGML_OP_TRI:
      return lower_tri;
    case GGML_OP_ARANGE:
      return lower_arange;
    case GGML_OP_SET:
    case GGML_OP_ACC:
      return lower_set;
    case GGML_OP_GET_ROWS:
      return lower_get_rows;
    case GGML_OP_SET_ROWS:
      return lower_set_rows;
    case GGML_OP_NORM:
      return lower_norm;
    case GGML_OP_RMS_NORM:
      return lower_rms_norm;
    case GGML_OP_RMS_NORM_BACK:
      return lower_rms_norm_back;
    case GGML_OP_L2_NORM:
      return lower_l2_norm;
    case GGML_OP_GROUP_NORM:
      return lower_group_norm;
    case GGML_OP_SOFT_MAX:
      return lower_soft_max;
    case GGML_OP_SOFT_MAX_BACK:
      return lower_soft_max_back;
    case GGML_OP_FLASH_ATTN_EXT:
      return lower_attention;
    case GGML_OP_ROPE:
    case GGML_OP_ROPE_BACK:
      return lower_rope;
    case GGML_OP_SUM:
    case GGML_OP_SUM_ROWS:
    case GGML_OP_MEAN:
      return lower_sum;
    case GGML_OP_CUMSUM:
      return lower_cumsum;
    case GGML_OP_ARGMAX:
      return lower_argmax;
    case GGML_OP_ARGSORT:
      return lower_argsort;
    case GGML_OP_TOP_K:
      return lower_top_k;
    case GGML_OP_COUNT_EQUAL:
      return lower_count_equal;
    case GGML_OP_SSM_CONV:
      return lower_ssm_conv;
    case GGML_OP_IM2COL:
      return lower_im2col;
    case GGML_OP_POOL_1D:
    case GGML_OP_POOL_2D:
      return lower_pool;
    case GGML_OP_CONV_2D:
    case GGML_OP_CONV_2D_DW:
      return lower_convolution;
    case GGML_OP_CONV_3D:
      return lower_convolution_3d;
    case GGML_OP_CONV_TRANSPOSE_1D:
    case GGML_OP_CONV_TRANSPOSE_2D:
      return lower_convolution_transpose;
    case GGML_OP_IM2COL_3D:
      return lower_im2col_3d;
    case GGML_OP_GET_ROWS_BACK:
      return lower_get_rows_back;
    default:
      return nullptr;
  }
}

bool is_view_alone(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

}  // namespace

void lower(Emitter& e, const ggml_tensor* node) {
  if (is_view_alone(node->op) || ggml_is_empty(node)) return;
  LowerFn* const function = function_of(node->op);
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
