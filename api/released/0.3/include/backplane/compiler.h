/* backplane/compiler.h - whole programs, compiled ahead and run as one kernel.
 *
 * An optional table. Devices that only run compiled graphs run everything through it. A registry
 * that was made with BP_REGISTRY_COMPILE_OPS makes a program of one node of each op that has no
 * kernel, and keeps it; other registries compile an op only in bp_op_prepare().
 *
 *   compile(device, {"backplane.graph", &program}) -> executable
 *   executable_kernel(executable) -> kernel; launch it with a bp_program_args as its frame
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   compile(), serialize() and deserialize() may take long; no entry waits for device
 *              work.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns an executable until release(). Programs are borrowed during the
 *              call.
 */
#ifndef BACKPLANE_COMPILER_H_
#define BACKPLANE_COMPILER_H_

#include "backplane/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_executable bp_executable;

/* How a program says what an extent is. */
typedef uint32_t bp_extent_kind;
enum {
  BP_EXTENT_RANGE = 1,    /* The shapes of the tensors of a launch give it, within a range. */
  BP_EXTENT_SUM = 2,      /* The sum of its terms. */
  BP_EXTENT_PRODUCT = 3,  /* The product of its terms. */
  BP_EXTENT_QUOTIENT = 4, /* The first of two terms, divided by the second without a remainder. */
  BP_EXTENT_MAXIMUM = 5   /* The largest of its terms. */
};

/* An extent that is another number in each launch, such as the length of a sentence. A request.
 *
 * In the shapes of a program, those of its values and those of the tensors of its nodes, an entry
 * of -(i + 1) stands for extents[i]: all its places have one number in a launch. [COMPILER-15] The
 * tensors of a launch give the extents. A launch is BP_INVALID_ARGUMENT if they give a number
 * outside of a range, two numbers for one extent, or not the number of a formula; the text names
 * the extent, such as "extent 2", and the number.
 *
 * [COMPILER-16] A compiler refuses extents that cannot be with BP_INVALID_ARGUMENT, and the text
 * names the extent: a range that is not in the shape of an input or output, a term that names the
 * extent itself or a later one, and a formula that has no result if all ranges are at `min`, at
 * `preferred` or at `max`, such as a quotient with a remainder. */
typedef struct bp_program_extent {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROGRAM_EXTENT. */
  const void* next;
  bp_extent_kind kind;
  uint32_t reserved; /* 0. */
  int64_t min;       /* At least 0. These three members are those of a range, and else 0. */
  int64_t preferred; /* compile() makes launches with this number fast. */
  int64_t max;
  /* Those of a formula: each is a number of at least 0, or -(j + 1) for extents[j], which is an
   * earlier one. NULL for a range. */
  const int64_t* terms;
  uint64_t term_count;
} bp_program_extent;

/* Where a value of a program comes from. */
typedef uint32_t bp_value_role;
enum {
  BP_VALUE_INPUT = 1,
  BP_VALUE_OUTPUT = 2,
  BP_VALUE_TEMPORARY = 3,
  BP_VALUE_CONSTANT = 4 /* It has `data`, a `buffer`, or a `key` that an executable holds. */
};

/* One tensor of a program. A request. [COMPILER-17] A value without strides is row-major over the
 * extents of each launch, and a value with strides has them in each launch. */
typedef struct bp_program_value {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROGRAM_VALUE. */
  const void* next;
  const int64_t* shape;   /* `ndim` entries. That of a constant names no extents. */
  const int64_t* strides; /* In elements; NULL: row-major. */
  const void* data;       /* NULL, or the bytes of a constant in memory of the host, row-major. */
  bp_dtype dtype;
  uint32_t ndim;
  bp_value_role role;
  uint32_t reserved; /* 0. */
  /* NULL, or what names the content of a constant among all constants of the device, such as a hash
   * of its bytes, or a file, its version and the name of a tensor in it. [COMPILER-12] The
   * executables of a device hold a constant with a key once. While one of them lives, the key alone
   * names the constant, and `data` is not read. A key that nobody holds, without data and buffer,
   * is BP_NOT_FOUND, and a key of a constant of another dtype or shape is BP_INVALID_ARGUMENT; the
   * text names the key. */
  const char* key;
  /* A buffer that is NULL, or where the bytes of a constant lie on the device, row-major, at a
   * multiple of 256 bytes. [COMPILER-13] Executables read a constant in a buffer in place, and hold
   * no copy. The caller leaves it as it is until the release of these executables and the end of
   * their launches. A key does not stand for what is in a buffer of the caller. */
  bp_buffer_ref buffer;
  /* NULL, or how the elements lie: a description of the value's own dtype and shape, which names no
   * extents, beside strides that are NULL. [COMPILER-22] A launch passes an input or output in the
   * layout that from_desc() makes of an equal description. Any other layout, and strides in place
   * of a layout or a layout in place of strides, are BP_INVALID_ARGUMENT before work starts, and
   * the text names the tensor. `data` of a constant is row-major beside a TILED layout, and the
   * blocks beside a QUANTIZED one; a `buffer` holds the layout.
   *
   * [COMPILER-23] A node whose kernels do not take the layout of a value has the same result as a
   * node whose kernels do: the compiler copies the elements to and fro. If it cannot, or if the
   * device does not have the layout, query() gives the node a reason. A description that
   * from_desc() refuses with BP_INVALID_ARGUMENT, or that is of another dtype or shape than its
   * value, is BP_INVALID_ARGUMENT. */
  const bp_layout_desc* layout;
} bp_program_value;

/* Gives an integer attribute of a node the number of an extent. Frozen. */
typedef struct bp_extent_binding {
  uint32_t member_offset; /* The offset of an i32, i64, u64 or i64_list in the frame (ops.def). */
  uint32_t extent;        /* An index of bp_program::extents. */
  uint64_t element;       /* The element of a list; 0 for every other member. */
} bp_extent_binding;

/* One op of a program. A request. */
typedef struct bp_program_node {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROGRAM_NODE. */
  const void* next;
  /* The frame of the op. Its tensors are views: byte_offset counts from the beginning of the value,
   * and buffers and layouts are NULL. [COMPILER-18] The strides of a tensor may be NULL: it is
   * row-major then in each launch. If the strides of a value follow its extents, a tensor with
   * strides of its own cannot follow them, and is BP_UNSUPPORTED. A tensor of a value with a layout
   * is this whole value, in its layout, and its strides are ignored; any other view of such a value
   * is BP_UNSUPPORTED. */
  const void* args;
  /* The index of the value of each tensor, in the order of the frame. The tensors of a list follow
   * each other, and an absent tensor has BP_NO_VALUE. [COMPILER-7] A frame that is shorter than the
   * reader's has no tensor behind its end, and a longer one is taken if it is zero there and the
   * values of its further tensors are BP_NO_VALUE. An operand may be a tensor in acc(x), as for
   * BP_KERNEL_TAKES_ACC_OPERAND: a host gives inline operands so. */
  const uint32_t* values;
  uint64_t value_count;
  /* A BP_OP_* id, or the number that this host gave an op that was described at run time. [OP-11]
   * fingerprint() and serialize() name such an op by its name: a process in which it has another
   * number gets the same fingerprint, and takes the bytes. An op that nobody describes is
   * BP_NOT_FOUND. Bytes with an op that nobody describes, or whose frame is described in another
   * way, are BP_INCOMPATIBLE for deserialize(), and the text has the name of the op. */
  uint32_t op;
  uint32_t reserved; /* 0. */
  /* [COMPILER-19] In each launch an attribute with a binding is the number of its extent; what the
   * frame has in its place is not read. A binding to anything but an integer attribute, and an
   * extent that the attribute cannot hold, are BP_INVALID_ARGUMENT. */
  const bp_extent_binding* bindings;
  uint64_t binding_count;
} bp_program_node;

#define BP_NO_VALUE 0xFFFFFFFFu
#define BP_NO_PARTITION 0xFFFFFFFFu

/* An input and an output of a program that may share memory, such as a parameter and its next
 * state. Frozen.
 *
 * [COMPILER-24] In a launch the tensors of an alias may be one memory: they have one buffer and one
 * byte_offset then. The output gets the elements that it gets in separate memory, and those of the
 * input are gone. A launch with separate memory leaves the input as it was. An alias is
 * BP_INVALID_ARGUMENT unless it names an input and an output, of one dtype, shape, layout and
 * strides, that no other alias names; the text names the alias. */
typedef struct bp_program_alias {
  uint32_t input; /* Indices of bp_program::values. */
  uint32_t output;
} bp_program_alias;

/* A program of format "backplane.graph". A request. [COMPILER-1] The nodes of a program run as if
 * one after the other, in the order of `nodes`; a value is written by the nodes that have it as an
 * output. */
typedef struct bp_program {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROGRAM. */
  const void* next;
  const bp_program_value* values;
  uint64_t value_count;
  uint64_t value_stride_bytes; /* From one value to the next; at least its struct_size. */
  const bp_program_node* nodes;
  uint64_t node_count;
  uint64_t node_stride_bytes; /* From one node to the next; at least its struct_size. */
  const bp_program_extent* extents;
  uint64_t extent_count;
  uint64_t extent_stride_bytes; /* From one extent to the next; at least its struct_size. */
  const bp_program_alias* aliases;
  uint64_t alias_count;
} bp_program;

/* The frame of an executable's kernel. Its head is frozen. The tensors are the inputs, then the
 * outputs, each in the order of their values, with the dtypes, shapes and strides of the values.
 * Where a value names extents, the tensors have numbers.
 *
 * [COMPILER-25] An output with elements that begins where another tensor with elements begins is
 * BP_INVALID_ARGUMENT before work starts, unless an alias names the two; the text names both. The
 * caller ensures that an output shares memory with no other tensor of the frame in any other way.
 */
typedef struct bp_program_args {
  uint32_t struct_size;
  uint32_t flags; /* None defined: 0. */
  const bp_tensor* tensors;
  uint64_t tensor_count;
} bp_program_args;

/* Returns 0 to go on, and any other value to stop. */
typedef uint32_t bp_should_stop_fn(void* user_data);

/* What to compile. A request.
 *
 * [COMPILER-8] A compiler does what each option says, or refuses it: a key that it does not know is
 * BP_NOT_FOUND, a value that it does not take is BP_INVALID_ARGUMENT, and the text names the key.
 *
 * [COMPILER-9] compile() calls should_stop() on the calling thread before its first step, and again
 * at the latest when a step has taken 100 ms; a call into a library is one step. Once should_stop()
 * has returned another value than 0, compile() does not call it again, leaves nothing behind and
 * returns BP_ABORTED. */
typedef struct bp_compile_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_COMPILE_DESC. */
  const void* next;
  const char* format; /* One of the names that formats() lends. */
  const void* data;   /* A bp_program for "backplane.graph"; else the program's bytes. */
  uint64_t size_bytes;
  bp_launch_flags flags; /* The flags of the launches to come. */
  uint32_t reserved;     /* 0. */
  /* Options of this compiler alone, such as "plans". No key is given twice. */
  const bp_option* options;
  uint64_t option_count;
  bp_should_stop_fn* should_stop; /* NULL: nothing stops compile(). Other entries never call it. */
  void* user_data;                /* The argument of should_stop(). */
  /* NULL, or what describe() wrote about a device that may be in another machine. [COMPILER-26]
   * With a target the device of query(), fingerprint() and compile() may be NULL, and is not
   * used: they do what they do for a device with this description. compile() then needs no content
   * of constants with keys, and executable_kernel() and load() of the executable are
   * BP_UNSUPPORTED. deserialize() takes what serialize() writes of it on devices that have this
   * description, and is BP_INCOMPATIBLE on others. */
  const void* target;
  uint64_t target_size_bytes;
} bp_compile_desc;

/* What an executable needs. An offer; the caller sets struct_size. */
typedef struct bp_executable_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_EXECUTABLE_INFO. */
  const void* next;
  uint64_t constant_bytes; /* Device memory that the executable alone keeps. */
  /* Device memory of a launch, as workspace_size() of its kernel says. [COMPILER-20] If a program
   * has ranges, workspace_size() reads the shapes in a bp_program_args, and a launch with these
   * shapes needs no more. Without a frame or without tensors it gives what the largest extents
   * need, as this member does. */
  uint64_t workspace_bytes;
  uint64_t code_bytes; /* 0: not known. */
  /* Device memory of its constants with keys, which other executables may hold as well. Buffers of
   * the caller do not count. */
  uint64_t shared_constant_bytes;
  uint32_t is_loaded; /* 1 if load() need not be called before a launch, else 0. */
  uint32_t reserved;  /* 0. */
} bp_executable_info;

/* The functions of one backend. An offer. */
typedef struct bp_compiler_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_COMPILER_OPS. */
  const void* next;
  void* self;

  /* Lends the names of the formats that compile() takes. [COMPILER-2] One of the names that
   * formats() lends is "backplane.graph". */
  bp_status (*formats)(void* self, bp_device* device, uint64_t* out_count,
                       const char* const** out_names);

  /* Divides a "backplane.graph" into partitions, each of which a host gives to compile() as a
   * program of its own. For node i, out_partitions[i] is the number of its partition, below
   * *out_partition_count, and out_reasons[i] is NULL; or these are BP_NO_PARTITION and the reason
   * why the compiler does not take the node, a static string. `capacity` is at least the count of
   * nodes. query() reads only shapes. [COMPILER-21] A compiler that does not take ranges gives each
   * node that names an extent such a reason.
   *
   * [COMPILER-3] A partition is convex: a node on a path from one of its nodes to another is in it
   * too. Each partition has a node, and waits for no partition with a higher number. */
  bp_status (*query)(void* self, bp_device* device, const bp_compile_desc* desc, uint64_t capacity,
                     uint32_t* out_partitions, bp_reason* out_reasons,
                     uint64_t* out_partition_count);

  /* Optional; writes two words that name what compile() would make of the description, so that a
   * host finds what it has serialized. [COMPILER-10] Equal descriptions have equal fingerprints in
   * every process of one build, on all devices that are alike. Descriptions with other nodes,
   * values, constants, flags or options have other fingerprints. The key of a constant stands for
   * its bytes, and should_stop() is not part of it. A program that query() does not take whole is
   * BP_UNSUPPORTED, and so is a constant in a buffer that has no key. */
  bp_status (*fingerprint)(void* self, bp_device* device, const bp_compile_desc* desc,
                           uint64_t* out_words);

  /* A program with a node that query() refuses, and a format that formats() lacks, are
   * BP_UNSUPPORTED. A partition of query() may be BP_UNSUPPORTED too, such as for its memory, and
   * so may a whole program that has several partitions; the text says why. The host then runs the
   * nodes in another way. */
  bp_status (*compile)(void* self, bp_device* device, const bp_compile_desc* desc,
                       bp_executable** out_executable);

  /* Lends the kernel that runs the executable, until release(). [COMPILER-4] The kernel of an
   * executable has op 0 and a bp_program_args as its frame; all other rules of kernels hold. */
  bp_status (*executable_kernel)(void* self, bp_executable* executable,
                                 const bp_kernel** out_kernel);

  bp_status (*executable_info)(void* self, bp_executable* executable, bp_executable_info* out_info);

  /* Writes the executable as bytes, up to `capacity`; *out_size_bytes is the size of all bytes.
   * [COMPILER-14] Bytes of serialize() have the keys of constants in place of what they name. A
   * constant in a buffer that has no key is BP_UNSUPPORTED. */
  bp_status (*serialize)(void* self, bp_executable* executable, uint64_t capacity, void* out_data,
                         uint64_t* out_size_bytes);

  /* [COMPILER-5] deserialize() returns BP_INCOMPATIBLE for bytes of another driver, version or
   * device, and for bytes that were damaged: the caller then compiles the program anew. Constants
   * with keys are found among the values of `constants`, a program that needs no nodes, or as
   * compile() finds keys; NULL gives none. */
  bp_status (*deserialize)(void* self, bp_device* device, const void* data, uint64_t size_bytes,
                           const bp_program* constants, bp_executable** out_executable);

  /* Optional; says whether serialize() wrote these bytes for devices like this one. [COMPILER-11]
   * validate() loads nothing. For bytes that were cut or changed, and for those of another driver,
   * version or device, it returns BP_INCOMPATIBLE, and the text says which. deserialize() of bytes
   * that are valid may still fail, such as for memory. */
  bp_status (*validate)(void* self, bp_device* device, const void* data, uint64_t size_bytes);

  /* [COMPILER-6] Launches that were submitted before release() complete. NULL is a no-op. */
  bp_status (*release)(void* self, bp_executable* executable);

  /* Optional; writes a description of the device for compilations in other places, up to
   * `capacity` bytes; *out_size_bytes is the size of all bytes. [COMPILER-27] Devices that are
   * alike have equal descriptions in every process of one build. As a target, bytes that were cut
   * or changed, and those of another driver or version, are BP_INCOMPATIBLE, and the text says
   * which. */
  bp_status (*describe)(void* self, bp_device* device, uint64_t capacity, void* out_data,
                        uint64_t* out_size_bytes);

  /* Optional, both or neither. compile() and deserialize() give executables that are loaded.
   * unload() frees the device memory of an executable, behind the launches that were submitted.
   * load() allocates it again; it finds constants with keys as deserialize() does. [COMPILER-28] An
   * executable that is not loaded has constant_bytes and shared_constant_bytes of 0 and holds no
   * key, and its launches are BP_UNSUPPORTED before work starts. After load() it gives the results
   * that it gave before. A call that finds the executable as it should be is a no-op, and a load()
   * that fails leaves it unloaded. [COMPILER-29] unload() of an executable whose launch is part of
   * a capture, a graph or an instance is BP_UNSUPPORTED, and the text says so. */
  bp_status (*load)(void* self, bp_executable* executable, const bp_program* constants);
  bp_status (*unload)(void* self, bp_executable* executable);
} bp_compiler_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_COMPILER_H_ */
