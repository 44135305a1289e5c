// CPY, CONT, DUP, and other ops that move elements.
#include <cstring>
#include <limits>

#include "lower.h"

namespace bpg {
namespace {

View line(Emitter& e, int64_t count, int64_t start) {
  const View y = e.temporary(BP_I32, {count});
  bp_arange_args args{};
  args.y = e.arg(y);
  args.start_scalar.dtype = args.step_scalar.dtype = BP_I64;
  args.start_scalar.bits = static_cast<uint64_t>(start);
  args.step_scalar.bits = 1;
  e.launch(BP_OP_ARANGE, args);
  return y;
}

View indexed(Emitter& e, const View& x, int axis, const std::vector<int32_t>& numbers) {
  Shape shape = x.dims();
  shape[axis] = static_cast<int64_t>(numbers.size());
  const View y = e.temporary(x.dtype, shape);
  bp_index_select_args args{};
  args.x = e.arg(x);
  args.indices = e.arg(e.constant(numbers));
  args.y = e.arg(y);
  args.axis = axis;
  e.launch(BP_OP_INDEX_SELECT, args);
  return y;
}

// Blocks on one side or on both.
void copy_blocks(Emitter& e, const ggml_tensor* from, const ggml_tensor* node) {
  if (from->type == node->type) {
    if (!ggml_are_same_shape(from, node)) throw Refusal("blocks are not copied to another shape");
    return e.copy(e.bytes(from), e.bytes(node));
  }
  if (ggml_is_quantized(node->type)) {
    const BlockFormat* const format = block_format(node->type);
    if (format == nullptr || !e.device().can_encode(*format)) {
      throw Refusal(std::string("the device makes no blocks of ") + ggml_type_name(node->type));
    }
    require_no_ties(from);
    const View bytes = e.bytes(node);
    const View x = e.reshape(e.cast(floats_of(e, from), BP_F32),
                             {node->ne[3], node->ne[2], node->ne[1], node->ne[0]});
    const View blocks = e.temporary_blocks(*format, x.dims());
    e.convert(x, blocks);
    return e.copy(dense(blocks.buffer, blocks.byte_offset, BP_U8, bytes.dims()), bytes);
  }
  const View y = e.tensor(node);
  e.copy(e.reshape(floats_of(e, from), y.dims()), y);
}

}  // namespace

void lower_copy(Emitter& e, const ggml_tensor* node) {
  const ggml_tensor* const from = node->src[0];
  if (ggml_is_quantized(from->type) || ggml_is_quantized(node->type)) {
    return copy_blocks(e, from, node);
  }
  View x = e.tensor(from), y = e.tensor(node);
  if (!x.has_shape(y)) {
    // Elements are counted in the order of both shapes.
    View reshaped;
    if (reshape_view(x, y.dims(), reshaped)) {
      x = reshaped;
    } else if (reshape_view(y, x.dims(), reshaped)) {
      y = reshaped;
    } else {
      x = e.reshape(x, y.dims());
    }
  }
  e.copy(x, y);
}

void lower_concat(Emitter& e, const ggml_tensor* node) {
  const auto elements = [&](const ggml_tensor* t) {
    return ggml_is_quantized(t->type) ? e.bytes(t) : e.tensor(t);
  };
  const View a = elements(node->src[0]), b = elements(node->src[1]), y = elements(node);
  const int axis = 3 - int_param(node, 0);
  const bp_tensor* const parts[] = {e.arg(a), e.arg(b)};
  bp_cat_args args{};
  args.xs_count = 2;
  args.xs = parts;
  args.y = e.arg(y);
  args.axis = axis;
  e.launch(BP_OP_CAT, args);
}

void lower_repeat(Emitter& e, const ggml_tensor* node) {
  View x = e.tensor(node->src[0]), y = e.tensor(node), to = y;
  repeat_like(x, y, to);
  e.copy(x, to);
}

void lower_repeat_back(Emitter& e, const ggml_tensor* node) {
  View x = e.tensor(node->src[0]);
  const View y = e.tensor(node);
  Shape axes;
  for (int axis = 3; axis >= 0; --axis) {
    if (x.shape[axis] == y.shape[axis]) continue;
    x = split(x, axis, y.shape[axis]);
    for (int64_t& behind : axes) ++behind;
    axes.push_back(axis);
  }
  e.sum(x, axes, y, false);
}

void lower_pad(Emitter& e, const ggml_tensor* node) {
  View x = e.tensor(node->src[0]);
  const View y = e.tensor(node);
  const bool is_circular = int_param(node, 8) != 0;
  if (is_circular) {
    for (int axis = 0; axis < 4; ++axis) {
      if (x.shape[axis] == y.shape[axis]) continue;
      std::vector<int32_t> numbers;
      const int64_t before = int_param(node, 2 * (3 - axis)), extent = x.shape[axis];
      for (int64_t i = 0; i < y.shape[axis]; ++i) {
        numbers.push_back(static_cast<int32_t>(((i - before) % extent + extent) % extent));
      }
      x = indexed(e, x, axis, numbers);
    }
    return e.copy(x, y);
  }
  View inner = y;
  for (int axis = 0; axis < 4; ++axis) {
    const int64_t before = int_param(node, 2 * (3 - axis));
    inner = slice(inner, axis, before, before + x.shape[axis]);
  }
  e.fill(y, 0);
  e.copy(x, inner);
}

void lower_pad_reflect(Emitter& e, const ggml_tensor* node) {
  bp_pad_args args{};
  args.x = e.arg(e.tensor(node->src[0]));
  args.y = e.arg(e.tensor(node));
  args.axis = 3;
  args.before = int_param(node, 0);
  args.after = int_param(node, 1);
  args.mode = BP_PAD_MODE_REFLECT;
  args.value_scalar.dtype = BP_F64;
  e.launch(BP_OP_PAD, args);
}

void lower_roll(Emitter& e, const ggml_tensor* node) {
  View x = e.tensor(node->src[0]);
  for (int axis = 0; axis < 4; ++axis) {
    const int shift = int_param(node, 3 - axis);
    if (shift == 0) continue;
    const View y = e.temporary(x.dtype, x.dims());
    bp_roll_args args{};
    args.x = e.arg(x);
    args.y = e.arg(y);
    args.shift = shift;
    args.axis = axis;
    e.launch(BP_OP_ROLL, args);
    x = y;
  }
  e.copy(x, e.tensor(node));
}

void lower_diag(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  e.fill(y, 0);
  View diagonal = squeeze(slice(y, 2, 0, 1), 2);
  diagonal.strides[2] = y.strides[2] + y.strides[3];
  e.copy(squeeze(x, 2), diagonal);
}

void lower_diag_mask(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  const Shape matrix{x.shape[2], x.shape[3]};
  const View column = expand_to(unsqueeze(line(e, matrix[1], 0), 0), matrix);
  const View last = expand_to(unsqueeze(line(e, matrix[0], int_param(node, 0)), 1), matrix);
  const View mask = e.compare(BP_OP_GT, column, last);
  bp_masked_fill_args args{};
  args.x = e.arg(x);
  args.mask = e.arg(expand_to(unsqueeze(unsqueeze(mask, 0), 0), x.dims()));
  args.y = e.arg(y);
  const double value =
      node->op == GGML_OP_DIAG_MASK_INF ? -std::numeric_limits<double>::infinity() : 0;
  args.value_scalar.dtype = BP_F64;
  std::memcpy(&args.value_scalar.bits, &value, sizeof(value));
  e.launch(BP_OP_MASKED_FILL, args);
}

void lower_tri(Emitter& e, const ggml_tensor* node) {
  const auto type = static_cast<ggml_tri_type>(int_param(node, 0));
  const bool is_upper = type == GGML_TRI_TYPE_UPPER || type == GGML_TRI_TYPE_UPPER_DIAG;
  bp_tril_args args{};
  static_assert(sizeof(bp_tril_args) == sizeof(bp_triu_args));
  args.x = e.arg(e.tensor(node->src[0]));
  args.y = e.arg(e.tensor(node));
  args.diagonal = type == GGML_TRI_TYPE_UPPER ? 1 : type == GGML_TRI_TYPE_LOWER ? -1 : 0;
  e.launch(is_upper ? uint32_t{BP_OP_TRIU} : uint32_t{BP_OP_TRIL}, args);
}

void lower_arange(Emitter& e, const ggml_tensor* node) {
  const auto scalar = [&](int index) {
    const double value = float_param(node, index);
    bp_scalar result{};
    result.dtype = BP_F64;
    std::memcpy(&result.bits, &value, sizeof(value));
    return result;
  };
  bp_arange_args args{};
  args.y = e.arg(squeeze(squeeze(squeeze(e.tensor(node), 0), 0), 0));
  args.start_scalar = scalar(0);
  args.step_scalar = scalar(2);
  e.launch(BP_OP_ARANGE, args);
}

// The result is src0 with src1 set into a part, or added to it.
void lower_set(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), part = e.tensor(node->src[1]), y = e.tensor(node);
  View place = y;
  const auto size = static_cast<int64_t>(y.element_bytes());
  place.byte_offset += int_param(node, 3);
  for (int i = 0; i < 4; ++i) {
    place.shape[3 - i] = part.shape[3 - i];
    if (i == 0) continue;
    if (int_param(node, i - 1) % size != 0) {
      throw Refusal("a stride is no multiple of the size of an element");
    }
    place.strides[3 - i] = int_param(node, i - 1) / size;
  }
  if (!same_elements(x, y)) e.copy(x, y);
  if (node->op == GGML_OP_ACC) return e.binary(BP_OP_ADD, place, part, place);
  e.copy(part, place);
}

}  // namespace bpg
