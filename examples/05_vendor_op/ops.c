/* The two ops, as data. The host checks every call by the rules, and runs the decomposition where
 * no kernel takes a call: also on devices of other vendors. */
#include <stddef.h>

#include "chip.h"

#define ARGUMENT(member, what, place)                                                           \
  .struct_size = sizeof(bp_op_argument), .struct_type = BP_STRUCT_OP_ARGUMENT, .name = #member, \
  .kind = (what), .offset_bytes = (uint32_t)offsetof(place, member)

static const bp_op_argument saturating_add_arguments[] = {
    {ARGUMENT(a, BP_ARGUMENT_TENSOR, saturating_add_args), .dtype_rule = "set(u8, i8, i16)"},
    {ARGUMENT(b, BP_ARGUMENT_TENSOR, saturating_add_args), .dtype_rule = "like(a)",
     .shape_rule = "a.shape"},
    {ARGUMENT(y, BP_ARGUMENT_OUT, saturating_add_args), .dtype_rule = "like(a)",
     .shape_rule = "a.shape", .may_alias = 1 | 2}};

static const bp_op_argument swiglu_linear_arguments[] = {
    {ARGUMENT(x, BP_ARGUMENT_TENSOR, swiglu_linear_args), .dtype_rule = "set(f32, f16, bf16)",
     .rank_rule = "1 to 8"},
    {ARGUMENT(gate, BP_ARGUMENT_TENSOR, swiglu_linear_args), .dtype_rule = "like(x)",
     .shape_rule = "[gate.shape[0], x.shape[-1]]"},
    {ARGUMENT(up, BP_ARGUMENT_TENSOR, swiglu_linear_args), .dtype_rule = "like(x)",
     .shape_rule = "gate.shape"},
    {ARGUMENT(y, BP_ARGUMENT_OUT, swiglu_linear_args), .dtype_rule = "like(x)",
     .shape_rule = "x.shape[:-1] + [gate.shape[0]]"}};

#define OP(title, text, frame, list)                                                    \
  .struct_size = sizeof(bp_op_desc), .struct_type = BP_STRUCT_OP_DESC, .name = (title), \
  .doc = (text), .since = 1, .revision = 1, .frame_size_bytes = sizeof(frame),          \
  .arguments = (list), .argument_count = sizeof(list) / sizeof((list)[0]),              \
  .argument_stride_bytes = sizeof(bp_op_argument)

const bp_op_desc chip_ops[kOpCount] = {
    {OP("acme.saturating_add", "a + b, which stops at the ends of the dtype.", saturating_add_args,
        saturating_add_arguments),
     .decomposition = "low = 0 if a.dtype == u8 else (-128 if a.dtype == i8 else -32768)\n"
                      "high = 255 if a.dtype == u8 else (127 if a.dtype == i8 else 32767)\n"
                      "total = add(copy(a, dtype=i32), copy(b, dtype=i32))\n"
                      "y = copy(minimum(maximum(total, low), high), dtype=y.dtype)",
     .backward = "none: an integer has no gradient"},
    {OP("acme.swiglu_linear", "silu(x gate^T) * (x up^T): the first half of a gated layer.",
        swiglu_linear_args, swiglu_linear_arguments),
     .decomposition = "left = linear(x, gate, activation=silu, alpha=0, beta=0, dtype=acc(x))\n"
                      "right = linear(x, up, activation=none, alpha=0, beta=0, dtype=acc(x))\n"
                      "y = copy(mul(left, right), dtype=y.dtype)",
     .backward = "none: the op is for inference"}};
