/* backplane/kernel.h - one implementation of one op: what it takes, what it promises, how it runs.
 *
 * A kernel is an offer: data that says for which calls it is meant, and a few functions. The host
 * infers shapes, allocates outputs and workspace, chooses a kernel by its claims, and launches it
 * with the argument frame of the op (backplane/ops.h).
 *
 * Rules for every function of a kernel:
 *   Threads    Safe from any thread.
 *   Blocking   [KERNEL-3] supports(), workspace_size() and launch() never compile and never block
 *              on the device; prepare() may. On an inline stream launch() may run the work itself.
 *   Errors     Returns a status, with the text in the thread's error slot. supports() returns NULL
 *              or a reason.
 *   Ownership  Everything passed is borrowed during the call, and the buffers behind the tensors
 *              until the work completes.
 */
#ifndef BACKPLANE_KERNEL_H_
#define BACKPLANE_KERNEL_H_

#include "backplane/stream.h"
#include "backplane/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one launch demands. [KERNEL-2] An unknown bit in the launch flags is BP_UNSUPPORTED. */
typedef uint32_t bp_launch_flags;
enum {
  BP_LAUNCH_DETERMINISTIC = 1u << 0,  /* Equal input gives equal bits. */
  BP_LAUNCH_STRICT_F32 = 1u << 1,     /* f32 arithmetic takes no input of reduced precision. */
  BP_LAUNCH_DEVICE_CURRENT = 1u << 2, /* The thread's native device is already the right one. */
};

/* What a kernel prepared for the launches of one frame. The type is the kernel's own. */
typedef struct bp_plan bp_plan;

/* Where one launch runs, and the workspace that it may use. Frozen. */
typedef struct bp_launch {
  const void* next;
  bp_device* device;
  bp_stream* stream;
  bp_buffer_ref workspace; /* It has at least the size that was asked for and begins at a multiple
                              of 256 bytes; its content is undefined between launches. */
  bp_plan* plan;           /* NULL, or what prepare() made for this frame. */
  uint64_t correlation_id; /* Copied into profiler records. */
  bp_launch_flags flags;
  uint32_t reserved; /* 0. */
} bp_launch;

/* How the elements of a tensor lie: a tensor is of the first class that describes it. The stride of
 * an axis of extent 1 is ignored. */
typedef uint32_t bp_layout_flags;
enum {
  BP_LAYOUT_CONTIGUOUS = 1u << 0,     /* Row-major without gaps; also every empty tensor. */
  BP_LAYOUT_DENSE_PERMUTED = 1u << 1, /* Without gaps, the axes in another order. */
  BP_LAYOUT_BROADCAST = 1u << 2,      /* An axis has stride 0. */
  BP_LAYOUT_INNER_DENSE = 1u << 3,    /* The last axis has stride 1; there are gaps elsewhere. */
  BP_LAYOUT_ANY = 1u << 4,            /* Other strides. A claim of this covers every class. */
};

/* How the elements of a tensor lie that has no strides (backplane/layout.h). A reader takes a kind
 * that it does not know for BP_LAYOUT_KIND_VENDOR. */
typedef uint32_t bp_layout_kind;
enum {
  BP_LAYOUT_KIND_TILED = 1,     /* The elements in another order, perhaps padded. */
  BP_LAYOUT_KIND_QUANTIZED = 2, /* Blocks that share scales. */
  BP_LAYOUT_KIND_VENDOR = 3     /* Anything else. */
};

typedef uint32_t bp_layout_claim_flags;
enum {
  /* The arguments of the claim are taken in a layout that a claim lists, and never by strides.
   * [KERNEL-14] A kernel with a BP_LAYOUT_CLAIM_REQUIRED for an argument never gets a tensor by
   * strides there, neither in launch() nor in supports(), workspace_size() and prepare(). If the
   * claim is of kind TILED and has block_shape, the host makes that layout, converts a tensor by
   * strides before the launch, and converts results back. bp_dispatch_statistics counts such
   * calls. For any other claim the host offers the kernel only tensors that are in a layout. */
  BP_LAYOUT_CLAIM_REQUIRED = 1u << 0,
};

/* Layouts that a kernel takes in some of its arguments. An offer. A member that is 0 or NULL takes
 * every value of the layout's description. A layout without a description fits a claim that names
 * nothing but its kind. */
typedef struct bp_layout_claim {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT_CLAIM. */
  const void* next;
  uint64_t arguments;         /* Bit i is tensor argument i, in the order of the frame. A list is
                                 one argument, and the claim holds for each of its tensors. */
  const char* format_name;    /* A name of backplane/block_formats.def. */
  const int64_t* block_shape; /* The extents of a block along the last block_ndim axes; a tensor of
                                 a lower rank lacks the first of these axes. Along all axes before
                                 them a block has one element. */
  uint32_t block_ndim;
  bp_layout_kind kind;
  bp_dtype scale_dtype;
  bp_layout_claim_flags flags;
} bp_layout_claim;

typedef uint32_t bp_kernel_flags;
enum {
  BP_KERNEL_CAPTURABLE = 1u << 0,    /* May be launched while a graph is captured. */
  BP_KERNEL_DETERMINISTIC = 1u << 1, /* [KERNEL-6] A kernel with BP_KERNEL_DETERMINISTIC gives equal
                                        bits for equal input, in every run. */
  BP_KERNEL_IN_PLACE = 1u << 2,      /* Outputs may alias inputs where the op allows it. */
  BP_KERNEL_TAKES_SCALAR = 1u << 3,  /* Operands may be inline; else the host makes a tensor. */
  BP_KERNEL_TAKES_ACC_OPERAND = 1u << 4, /* [KERNEL-11] A kernel with BP_KERNEL_TAKES_ACC_OPERAND
                                            takes an operand in acc(x) beside an x of f16 or bf16,
                                            as a tensor of one element that every stride of 0
                                            repeats. */
};

/* What supports() never reads, so that the host may remember its answer. */
typedef uint32_t bp_supports_ignores;
enum {
  BP_SUPPORTS_IGNORES_SHAPE = 1u << 0,      /* Extents and strides beyond their layout class. */
  BP_SUPPORTS_IGNORES_ATTRIBUTES = 1u << 1, /* Everything in the frame that is not a tensor. */
  BP_SUPPORTS_IGNORES_ALIGNMENT = 1u << 2,  /* Byte offsets. */
};

/* How exact a kernel declares itself to be. An offer. The suite checks results against this
 * declaration, and the declaration against probes. Zero in a member is the value named first, the
 * strictest. */
typedef struct bp_numerics {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_NUMERICS. */
  const void* next;
  bp_dtype accumulator;      /* 0: f64 for f64, f32 for all other floats, i64 for integers. */
  uint32_t accumulator_bits; /* 0: all bits of `accumulator`; else how many are kept. */
  uint32_t products;         /* A BP_PRODUCTS_* value. */
  uint32_t rounding;         /* A BP_ROUNDING_* value. */
  uint32_t flush;            /* BP_FLUSH_* bits; 0: subnormals are kept. */
  uint32_t overflow;         /* A BP_OVERFLOW_* value. */
  uint32_t math;             /* A BP_MATH_* value. */
  uint32_t tie;              /* A BP_TIE_* value: which of several equal extremes has the index. */
} bp_numerics;
/* How products of f32 are made. The numbers say how far a product may be off, relative to itself.
 */
enum {
  BP_PRODUCTS_NATIVE = 0, /* Of the operands as they are. */
  BP_PRODUCTS_TF32 = 1,   /* Of operands that are rounded to 11 bits: 2^-10. */
  BP_PRODUCTS_BF16 = 2,   /* Of operands that are rounded to bf16: 2^-7. */
  BP_PRODUCTS_BF16X3 = 3  /* An operand is the sum of two bf16, and the product of the two smaller
                             parts is left out: 3 * 2^-16. */
};
enum { BP_ROUNDING_NEAREST_EVEN = 0, BP_ROUNDING_FAITHFUL = 1 };
enum { BP_FLUSH_INPUTS = 1u << 0, BP_FLUSH_OUTPUTS = 1u << 1 };
enum { BP_OVERFLOW_IEEE = 0, BP_OVERFLOW_SATURATE = 1, BP_OVERFLOW_NAN = 2 };
enum { BP_MATH_STRICT = 0, BP_MATH_RELAXED = 1 };
enum { BP_TIE_FIRST = 0, BP_TIE_ANY = 1 };

/* What a plan is made for. A request. */
typedef struct bp_prepare_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PREPARE_DESC. */
  const void* next;
  bp_launch_flags flags; /* The flags of the launches to come. */
  uint32_t reserved;     /* 0. */

  /* `constant_arg_count` numbers, in any order: each names a tensor that keeps its elements until
   * plan_release(), as a weight does. plan_pack() may put it into another form. The tensors of the
   * frame are counted from 0, in its order: the tensors of a list follow each other, and an absent
   * tensor counts too. The host gives no number twice, and none that is beyond the frame. */
  const uint32_t* constant_args;
  uint64_t constant_arg_count;
} bp_prepare_desc;

/* What launches with a plan need. An offer; the caller sets struct_size. */
typedef struct bp_plan_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PLAN_INFO. */
  const void* next;
  uint64_t packed_size_bytes; /* The memory for plan_pack(); 0: there is nothing to pack. */
  /* Launches with the plan, and plan_pack(), need this workspace, not that of workspace_size(). */
  uint64_t workspace_required_bytes;
  uint64_t workspace_preferred_bytes;
  const char* algorithm; /* The chosen algorithm, for people; the text lives as long as the plan. */
} bp_plan_info;

/* One kernel. `args` points to the frame of `op`, such as bp_softmax_args for BP_OP_SOFTMAX. The
 * frame has at least args_size_bytes. It may be longer; what follows is zero then, and the kernel
 * reads neither that nor struct_size. [KERNEL-10] A call that gives what the kernel's revision does
 * not have, a member or a value of an enumeration, never reaches the kernel. If the host does not
 * know a value either, it refuses the call with BP_UNSUPPORTED. */
typedef struct bp_kernel {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_KERNEL. */
  const void* next;
  void* state; /* The backend's own: functions receive the kernel, and find their instance here. */

  const char* name;         /* "softmax.rows". If two kernels of an op have the same name, the host
                               ignores the second one. */
  uint32_t op;              /* A BP_OP_* id from backplane/ops.h, or 0: op_name names the op. */
  uint32_t spec_revision;   /* The revision of the operators for which the kernel was written, as a
                               literal: 4 for ABI 0.4. That of the description for an op with a
                               name. What came later is outside the claims, also where these are
                               NULL, 0 or ANY. */
  uint32_t args_size_bytes; /* The size of the frame in that revision, by its constant, such as
                               BP_SOFTMAX_ARGS_SIZE_R3. */
  int32_t priority;         /* A kernel of higher priority is tried earlier. */
  bp_kernel_flags flags;
  bp_supports_ignores supports_ignores;
  const bp_numerics* numerics; /* NULL: all zero, the strictest. */

  /* Claims say, as data, which tensors the kernel takes. [KERNEL-7] A call outside the claims of a
   * kernel never reaches it. [KERNEL-8] The kernel gives a correct result for every call that its
   * claims cover and supports() accepts.
   *
   * A row gives the dtypes of the free arguments, in the order of the frame. An argument is free if
   * its dtype_rule in backplane/ops.def is a set, and neither like(), acc() nor one dtype, and if
   * it lies within args_size_bytes. An absent argument has no dtype, and every row fits it. Every
   * row fits an inline scalar too; for a kernel without BP_KERNEL_TAKES_SCALAR it is a tensor of
   * the first dtype of its set, which a row must have. A list of tensors is one argument, with one
   * place in the row: its members have the same dtype, else no claim takes the call. The claims of
   * layout, rank and alignment hold for each member. */
  const bp_dtype* dtype_rows;        /* (dtype_row_count, dtype_count); NULL claims every dtype. */
  uint32_t dtype_row_count;          /* Accepted combinations. */
  uint32_t dtype_count;              /* Free arguments of the op. */
  bp_layout_flags layouts;           /* The class of each tensor is among these. */
  uint32_t max_rank;                 /* 0: every rank. */
  uint64_t min_byte_alignment_bytes; /* 0 or 1: every byte_offset; else only multiples of it. */

  /* What the kernel understands of that which changes the meaning of a tensor (backplane/base.h).
   * [KERNEL-12] A call with a must-understand link whose type is not among link_types, or with a
   * flag of a tensor that is not in tensor_flags, never reaches the kernel, which does not check
   * for them. It looks for its own links with bp_link_find(), and may look for ignorable links,
   * which it does not list. */
  const uint32_t* link_types; /* Without BP_STRUCT_MUST_UNDERSTAND; NULL if there are none. */
  uint32_t link_type_count;
  uint32_t tensor_flags;

  /* [KERNEL-13] A call with a tensor in a layout that no claim lists for its argument never reaches
   * the kernel. supports() is asked about each call that the claims let through, for it depends on
   * shapes too whether a layout serves. */
  const bp_layout_claim* const* layout_claims; /* NULL: the kernel takes strides alone. */
  uint64_t layout_claim_count;

  /* Optional, never stubbed; NULL means that the claims are complete. Returns NULL if launch()
   * would accept `args`, else the reason, a static string. [KERNEL-4] supports() also answers for
   * tensors without a buffer: hosts ask before they allocate. */
  bp_reason (*supports)(const struct bp_kernel* self, bp_device* device, bp_launch_flags flags,
                        const void* args);

  /* Optional, never stubbed; NULL means 0. Gives the bytes of workspace without which a launch()
   * with `flags` fails, and those with which it is fastest. [KERNEL-15] The answer depends only on
   * `flags` and on dtypes, shapes, strides and attributes, so it is the same each time. Like
   * supports(), workspace_size() answers for tensors without a buffer. */
  bp_status (*workspace_size)(const struct bp_kernel* self, bp_device* device,
                              bp_launch_flags flags, const void* args, uint64_t* out_required_bytes,
                              uint64_t* out_preferred_bytes);

  /* Submits the work to launch->stream and returns. [KERNEL-1] launch() allocates no device memory.
   * [KERNEL-5] A launch() that returns BP_UNSUPPORTED has submitted nothing, and the host tries the
   * next kernel. For a failed stream launch() returns BP_STREAM_FAILED, so BP_UNSUPPORTED and
   * BP_INVALID_ARGUMENT always mean this frame. [KERNEL-9] launch() writes every element of each
   * output, and nothing else. It has no effect but the work that it submits, and counts nothing: a
   * capture may call it only to see whether it takes the frame, drop that work, and call it again
   * for each replay. */
  bp_status (*launch)(const struct bp_kernel* self, const bp_launch* launch, const void* args);

  /* ---- Plans: optional, never stubbed; all four are given, or none ----------------------------
   *
   * A host that launches one frame often may prepare it: what takes long is then done once. A frame
   * fits a plan if its dtypes, shapes, strides and attributes are those of prepare(); buffers and
   * offsets may differ, except those of constant arguments. [PLAN-1] A launch with a plan meets
   * the same contract as one without. A plan serves any number of launches at once, on every stream
   * of its device. */

  /* Makes the plan of a frame. The call may compile, choose an algorithm by trying some, and block.
   * [PLAN-2] prepare() reads only shapes and attributes, and also answers for tensors without a
   * buffer. BP_UNSUPPORTED says that no plan is of use, and launch() serves the frame without one.
   */
  bp_status (*prepare)(const struct bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                       const void* args, bp_plan** out_plan);

  bp_status (*plan_info)(const struct bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info);

  /* Submits to launch->stream the packing of the constant arguments into `packed`. The host gives
   * packed_size_bytes of memory, at a multiple of 256 bytes, that nobody else writes until the plan
   * has ended. If a plan has something to pack, the host calls plan_pack() once, before the
   * first launch with the plan; launches run after the packing. [PLAN-3] plan_pack() writes nothing
   * but `packed` and the workspace. */
  bp_status (*plan_pack)(const struct bp_kernel* self, const bp_launch* launch, const void* args,
                         const bp_buffer_ref* packed);

  /* Ends a plan. [PLAN-4] Work that was submitted with a plan goes on after plan_release(); a NULL
   * plan is a no-op. The host keeps `packed` until that work has ended. plan_release() never
   * fails. */
  bp_status (*plan_release)(const struct bp_kernel* self, bp_plan* plan);

  /* If `op` is 0, the name of an op that was described at run time (bp_registrar::add_ops), such as
   * "acme.swiglu". [OP-2] A kernel may name an op that is described later: the host offers it calls
   * from then on, if its revision, its size and its rows fit the description. */
  const char* op_name;
} bp_kernel;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_KERNEL_H_ */
