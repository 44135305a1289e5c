/* backplane/operator.h - what an op is, as data: its arguments, and their places in its frame.
 *
 * Each op has a description: those of backplane/ops.h, and those that backends and hosts add at run
 * time (bp_registrar::add_ops). Programs read it by bp_op_describe(), and backends by
 * bp_host::op_describe(). A bridge that is written over descriptions knows no op by name.
 *
 * Rules, which are written in words of the spec (ops_spec/README.md), are texts here:
 *   dtypes     A set of the spec ("float"), "set(f32, i64)", one dtype, "like(x)", "acc(x)", or
 *              "sum(x)", where x is an argument.
 *   shapes     An expression over arguments: "x.shape", "broadcast(a.shape, b.shape)",
 *              "x.shape[:-1] + [weight.shape[0]]", "reduced(x.shape, axes, keepdims)".
 *   bounds     An expression for a number: "0", "max(x.ndim, 1)".
 *   formulas   Lines "name = value". A value is a tensor, or an expression. A tensor is a name, a
 *              call of an op by its name, which gives every attribute ("sum(x, axes=[0],
 *              keepdims=1)"), a view of a tensor ("transpose(x)"), a tensor of a list ("xs[0]"), or
 *              one tensor of two ("x if given(bias) else add(x, bias)"). An argument that is a list
 *              takes a list by its name or as tensors: "cat([x, xs[0]], axis=0)". A line whose name
 *              is a list runs once for each of its tensors: the name of a list then means the
 *              tensor of the same index ("ys = neg(xs)").
 *
 * Threads: a description never changes, and its texts and lists live until the process ends.
 */
#ifndef BACKPLANE_OPERATOR_H_
#define BACKPLANE_OPERATOR_H_

#include "backplane/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dtype and shape of one output. Frozen. */
typedef struct bp_op_output {
  bp_dtype dtype;
  uint32_t ndim;
  int64_t shape[BP_MAX_RANK];
} bp_op_output;

/* What an argument is, and what stands for it in the frame. A list is a uint64_t count, which ends
 * where the pointer to its elements begins. */
typedef uint32_t bp_argument_kind;
enum {
  BP_ARGUMENT_TENSOR = 1,          /* const bp_tensor*. */
  BP_ARGUMENT_OPTIONAL_TENSOR = 2, /* const bp_tensor*, or NULL. */
  BP_ARGUMENT_TENSOR_LIST = 3,     /* const bp_tensor* const*, with a count. */
  BP_ARGUMENT_OUT = 4,             /* const bp_tensor*, which the op writes. */
  BP_ARGUMENT_OPTIONAL_OUT = 5,    /* The same, or NULL. */
  BP_ARGUMENT_OUT_LIST = 6,        /* const bp_tensor* const*, with a count. */
  BP_ARGUMENT_INOUT = 7,           /* const bp_tensor*, which the op reads and writes. */
  BP_ARGUMENT_INOUT_LIST = 8,      /* const bp_tensor* const*, with a count. */
  BP_ARGUMENT_OPERAND = 9,         /* const bp_tensor*; if it is NULL, the bp_scalar behind it. */
  BP_ARGUMENT_SCALAR_TENSOR = 10,  /* The same, and the tensor has one element. */
  BP_ARGUMENT_I32 = 11,            /* int32_t. */
  BP_ARGUMENT_I64 = 12,            /* int64_t. */
  BP_ARGUMENT_U64 = 13,            /* uint64_t. */
  BP_ARGUMENT_F64 = 14,            /* double. */
  BP_ARGUMENT_I64_LIST = 15,       /* const int64_t*, with a count. */
  BP_ARGUMENT_DTYPE = 16,          /* bp_dtype. */
  BP_ARGUMENT_ENUM = 17            /* uint32_t, one of value_names. */
};

/* One argument of an op. An offer in a description that the host lends. */
typedef struct bp_op_argument {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_OP_ARGUMENT. */
  const void* next;
  const char* name;
  bp_argument_kind kind;
  uint32_t offset_bytes; /* Its place in the frame; that of the pointer for a list. */
  uint32_t since;        /* The revision that brought it. */

  /* The dtypes that the caller chooses from: the argument is free then, and rows of claims list it.
   * There are none if the dtype follows from another argument, and for an attribute. */
  uint32_t dtype_count;
  const bp_dtype* dtypes;
  const char* dtype_rule;    /* NULL for an attribute. */
  const char* default_dtype; /* NULL, or the rule for a free output whose caller chooses none. */
  const char* shape_rule;    /* NULL: any shape. "given": the caller chooses that of an output. */
  const char* rank_rule;     /* NULL: any rank. "2", "1 to 8", or an expression. */
  const char* count_rule;    /* NULL: any count. An expression for the count of a list. */
  const char* at_least;      /* NULL, or the bounds of an attribute or of each of its elements. */
  const char* at_most;
  const char* below;
  const char* default_text; /* What wrappers pass if nobody says otherwise, or NULL. A frame always
                               has a value. */
  bp_scalar default_value;  /* default_text as a value; its dtype is 0 if that is an expression. */
  uint64_t may_alias;       /* Bit i: the output may be the memory of argument i. */

  /* The names of the values of a BP_ARGUMENT_ENUM, the first of which is first_value, and NULL or
   * the revision that brought each. */
  const char* const* value_names;
  const uint32_t* value_revisions;
  uint32_t value_count;
  uint32_t first_value; /* 0 or 1; 0 if a later revision than the op's brought the argument. */
  const char* doc;      /* One line, or NULL. */
} bp_op_argument;

/* One op. An offer in what the host lends. [OP-1] The description of an op of backplane/ops.h has
 * each argument of backplane/ops.def, in its order. */
typedef struct bp_op_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_OP_DESC. */
  const void* next;
  const char* name;  /* "softmax". */
  const char* doc;   /* What the op does, on one line. */
  uint32_t op;       /* Its number, such as BP_OP_SOFTMAX. */
  uint32_t since;    /* The revision that brought it; those of backplane/ops.h begin with 3. */
  uint32_t revision; /* The newest revision that the description has. */
  uint32_t frame_size_bytes; /* The size of the frame in that revision. */

  /* The arguments in the order of the frame, each argument_stride_bytes behind the one before. The
   * frame has nothing else but its struct_size, its flags, and padding that is zero. What a
   * revision appends begins at a multiple of 8 bytes: where it begins, the frame of the revision
   * before has ended. */
  const bp_op_argument* arguments;
  uint64_t argument_count;
  uint64_t argument_stride_bytes;

  const char* numerics; /* The class of its errors (conformance/docs), such as "E0"; or NULL. */

  /* NULL, or the op as other ops: formulas that give each output a value, such as "y = add(a, b)",
   * and each argument that the op reads and writes, whose name stands for the old value in lines
   * before its own, and in its own. They call ops of backplane/ops.h, and ops of the same vendor
   * that were described before. [OP-6]
   * A description whose decomposition is wrong is rejected; the text says the line and the word.
   * [OP-7] If no kernel of a device takes a call, the decomposition runs there, as for ops of
   * backplane/ops.h. [OP-8] A kernel gives the results of the decomposition: integers are equal,
   * and floats agree to half the bits of their mantissa, relative to the largest result. */
  const char* decomposition;
  /* NULL, or which calls the decomposition serves: an expression for a number, such as "x.dtype !=
   * f16 and axis == 0". [OP-10] The decomposition serves only calls for which this number is not 0;
   * for another call, bp_kernel_explain() names the condition. */
  const char* condition;
  /* NULL, or how the gradients are computed: "none: " with a reason, the name of the op that
   * computes them, or formulas that give grad_x a value for an input x, and read grad_y for an
   * output y. The host checks it as it checks a decomposition, and runs no gradient. */
  const char* backward;
  /* The revision for which the decomposition was written; 0: since. [OP-9] The decomposition serves
   * no call that gives what came later. */
  uint32_t formula_revision;
  /* The revision for which backward was written; 0: formula_revision. [OP-12] backward gives no
   * gradient of a call that gives what came later. Who computes gradients refuses such a call and
   * names what it gives: the member of a bp_op_argument whose `since` is later, or the value of an
   * enumeration whose entry of value_revisions is later. */
  uint32_t backward_revision;

  /* Optional, for bp_registrar::add_ops; NULL in what the host lends. Infers dtype and shape of the
   * outputs that are no lists, in the order of the frame, where shape_rules cannot say them. The
   * host has checked the inputs, and bp_op_output::dtype by dtype_rule. It sets the host's error
   * text for a failure, and calls nothing else of the host. The host calls it on any thread, also
   * on several at once, until the owner of the description has ended. It never waits. */
  bp_status (*infer)(void* state, const void* args, uint32_t output_count,
                     bp_op_output* out_outputs);
  void* state;
} bp_op_desc;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_OPERATOR_H_ */
