/* backplane/host.h - the host's side in C: load backends, allocate, launch ops, and ask why not.
 *
 * This is the interface of libbackplane.so for programs that use backends: frameworks, tools,
 * tests. backplane/registry.hpp wraps it for C++. A backend never includes it.
 *
 *   bp_registry* registry;
 *   bp_registry_create(NULL, &registry);
 *   const bp_plugin* plugin;
 *   if (bp_registry_load(registry, "cpu", 0, NULL, &plugin) != BP_OK) puts(bp_error_text());
 *   const bp_target* target;
 *   bp_registry_find_target(registry, "cpu:0", &target);
 *
 * Rules for every function, unless it says otherwise:
 *   Threads    Safe from any thread. Load, unload and destroy must not race with uses of what they
 *              end.
 *   Blocking   Never waits for a device.
 *   Errors     Returns a status; bp_error_text() has the sentence of the calling thread. Out
 *              parameters are left alone on failure. Where BP_INVALID_ARGUMENT is returned for the
 *              frame of an op, the sentence names op, argument, what was given and what is allowed.
 *   Sizes      A struct_size below that of the first release, or above 65,536, is
 *              BP_INCOMPATIBLE, and so is a `next` chain of more than 64 links.
 *   Texts      A text that comes from a backend holds no control characters and is valid UTF-8:
 *              what is not becomes an escape such as \\x1b, or U+FFFD. 4 spaces follow each line
 *              break of a backend. A name has at most 256 bytes, an error text 16,384.
 *   Ownership  What is lent as `const` belongs to the registry and lives until the unload of its
 *              plugin; the caller owns what is made until the matching destroy or free.
 */
#ifndef BACKPLANE_HOST_H_
#define BACKPLANE_HOST_H_

#include "backplane/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The struct types of this header, from a block that no backend uses. */
enum {
  BP_STRUCT_REGISTRY_DESC = 0x00100001,
  BP_STRUCT_TARGET = 0x00100002,
  BP_STRUCT_PLUGIN = 0x00100003,
  BP_STRUCT_MANIFEST = 0x00100004,
  BP_STRUCT_CACHE_STATISTICS = 0x00100005,
  BP_STRUCT_DISPATCH_STATISTICS = 0x00100006,
  BP_STRUCT_PREPARED_INFO = 0x00100007,
  BP_STRUCT_DISPATCH_REASON = 0x00100008,
};

/* ---- Errors --------------------------------------------------------------------------------- */

/* The text of the latest failure on this thread; "" if there was none since bp_error_clear(). Lent
 * until the thread's next failure. */
BP_API const char* bp_error_text(void);
BP_API void bp_error_clear(void);

/* Returns a static text: "out of memory" for BP_OUT_OF_MEMORY; "vendor status" below zero. */
BP_API const char* bp_status_name(bp_status status);

/* bp_dtype_name() returns a static text, "f32" for BP_F32, or NULL for an unknown dtype.
 * bp_dtype_from_name() is the way back, and returns 0 for an unknown name. */
BP_API const char* bp_dtype_name(bp_dtype dtype);
BP_API bp_dtype bp_dtype_from_name(const char* name);

/* Returns the bits of one element: 32 for BP_F32, 4 for BP_I4; 0 for an unknown dtype. */
BP_API uint32_t bp_dtype_bits(bp_dtype dtype);

/* Gives the number of the vendor's dtype `name`, as bp_registrar::add_dtype does, with the same
 * failures. A program needs it for names in files that it reads before it loads the backend. The
 * functions above know the dtype from then on. */
BP_API bp_status bp_dtype_add(const char* name, uint32_t bits, bp_dtype* out_dtype);

/* bp_op_name() returns "softmax" for BP_OP_SOFTMAX, or NULL for an unknown op. bp_op_from_name() is
 * the way back, and returns 0 for an unknown name, and for an op that nobody who is loaded
 * describes any more. */
BP_API const char* bp_op_name(uint32_t op);
BP_API uint32_t bp_op_from_name(const char* name);

/* ---- Version -------------------------------------------------------------------------------- */

/* Gives the version of the headers that this library was built with. A program that was built with
 * headers of a newer minor asks before it calls what came later: an entry of a table that this
 * library does not know lies behind the end of the table. */
BP_API bp_status bp_abi_version(uint32_t* out_major, uint32_t* out_minor);

/* ---- Environment ---------------------------------------------------------------------------- */

/* Returns the value of an environment variable whose name begins with "BACKPLANE_", or NULL: also
 * where the process runs with raised privileges. No other place reads the environment. */
BP_API const char* bp_environment(const char* name);

/* ---- Registry ------------------------------------------------------------------------------- */

/* The backends that a program has loaded. A registry is independent of others of the process. */
typedef struct bp_registry bp_registry;

typedef uint32_t bp_registry_flags;
enum {
  BP_REGISTRY_FORBID_HOST_FALLBACK = 1u << 0, /* A missing kernel is an error. */
  BP_REGISTRY_FORBID_DECOMPOSITION = 1u << 1,
  BP_REGISTRY_IGNORE_ENVIRONMENT = 1u << 2, /* Not even BACKPLANE_BACKENDS is read. */

  /* An op for which a device has a compiler and no kernel is compiled when it is launched, as a
   * program of one node. Without this flag only bp_op_prepare() compiles. Devices that have kernels
   * then decompose such an op, or the host computes it. On a device without any kernel, launches
   * and bp_kernel_find() return BP_UNSUPPORTED. */
  BP_REGISTRY_COMPILE_OPS = 1u << 3,
};

typedef struct bp_registry_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_REGISTRY_DESC. */
  const void* next;
  bp_registry_flags flags;
  uint32_t reserved;
  const char*
      search_path; /* NULL, or files and folders separated by ':' in place of the default. */
  /* NULL, or the function that gets the lines of backends and of the registry, on any thread. With
   * NULL they go to nobody, warnings and errors included: a library does not print. */
  void (*log_line)(void* user_data, bp_log_level level, const char* source, const char* message);
  void* user_data;

  /* NULL, or the layers in front of each backend, the first outermost: "validate,trace", and "" for
   * none. NULL takes the environment's BACKPLANE_LAYERS. api/docs/layers.md lists them. */
  const char* layers;
  /* NULL, or options of the layers: "trace.file=x.json,fault.seed=7". Without `layers` NULL takes
   * BACKPLANE_LAYER_OPTIONS. A layer or an option that does not exist is BP_NOT_FOUND in
   * bp_registry_create(), or in each load if it comes from the environment. */
  const char* layer_options;
} bp_registry_desc;

/* Makes a registry without backends. A NULL desc is all zero. */
BP_API bp_status bp_registry_create(const bp_registry_desc* desc, bp_registry** out_registry);

/* Unloads all plugins in reverse order, then frees the registry. NULL is a no-op. */
BP_API bp_status bp_registry_destroy(bp_registry* registry);

/* What a manifest says. It is read without loading anything, and lent until the next discovery. */
typedef struct bp_manifest {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_MANIFEST. */
  const void* next;
  const char* name;    /* "vendor.backend"; "" if the file could not be read. */
  const char* library; /* Absolute path of the plugin; NULL for one that is linked in. */
  const char* file;    /* Absolute path of the manifest, or "(static)". */
  const char* problem; /* NULL, or why this one cannot be used. */
  /* The majors from abi_major_min to abi_major are served. The minors are those of abi_major. */
  uint32_t abi_major, abi_minor_min, abi_minor, abi_major_min;
} bp_manifest;

/* Reads the manifests in the search path, sorted by file name, backends linked into the program
 * first. A manifest that cannot be used is listed with its problem, and so is a folder that cannot
 * be read: then `file` is that folder. A manifest is a regular file of at most 1 MiB. `out_count`
 * may be NULL. */
BP_API bp_status bp_registry_discover(bp_registry* registry, uint64_t* out_count);
BP_API bp_status bp_registry_manifest(const bp_registry* registry, uint64_t index,
                                      const bp_manifest** out_manifest);

/* A loaded backend. Lent. */
typedef struct bp_plugin {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PLUGIN. */
  const void* next;
  const char* name;     /* "vendor.backend". */
  const char* version;  /* The vendor's. */
  const char* path;     /* Absolute path of its file, or "(static)". */
  const char* refusals; /* A line for each entry that was shadowed or rejected, also in part; "" if
                           none. */
  uint32_t abi_major, abi_minor;
  uint64_t target_count;
  uint64_t kernel_count; /* Accepted kernels. */
  const char* layers;    /* The layers in front of it, outermost first: "validate,trace", or "". */
} bp_plugin;

/* Loads a backend and registers its tables. `name` is a path if it contains '/' or ends in ".so",
 * else the name in a manifest: "acme.npu", or its last part where that is unique: "npu". Fails
 * with BP_NOT_FOUND (no such file or name), BP_INCOMPATIBLE (not a plugin, or another ABI),
 * BP_ALREADY_EXISTS (that name is loaded), or the backend's own failure; the text says what and
 * why, and nothing stays loaded. Options are copied. */
BP_API bp_status bp_registry_load(bp_registry* registry, const char* name, uint64_t option_count,
                                  const bp_option* options, const bp_plugin** out_plugin);

/* Ends a plugin in two phases: first its targets leave the registry, cached selections of them are
 * dropped, cached memory is freed and work is waited for; then the instance is shut down and its
 * library closed. Tables that were lent stay readable until the registry ends, and their deallocate
 * and destroy entries do nothing and return BP_OK.
 *
 * If work of its devices has not ended after timeout_ns nanoseconds, the call returns BP_TIMEOUT
 * and changes nothing: the plugin stays loaded, and the call may be made again. With a timeout of 0
 * it only looks; a timeout of UINT64_MAX never runs out. A device that is lost has no work, and
 * ends like any other. */
BP_API bp_status bp_registry_unload(bp_registry* registry, const bp_plugin* plugin,
                                    uint64_t timeout_ns);

/* Counts the reports that the layer `layer` in front of a plugin has made: leaks, broken rules,
 * differing results. Each report is a line in the log as well. The count can be read after the
 * unload too. A layer that the plugin does not have is BP_NOT_FOUND. */
BP_API bp_status bp_plugin_layer_reports(const bp_plugin* plugin, const char* layer,
                                         uint64_t* out_count);

BP_API uint64_t bp_registry_plugin_count(const bp_registry* registry);
BP_API const bp_plugin* bp_registry_plugin(const bp_registry* registry, uint64_t index);

/* Describes ops, as bp_registrar::add_ops does, for a program whose own kernels or decompositions
 * serve them, or that reads a file before it loads the backend. The descriptions last until the
 * registry is destroyed, and so do the reasons in `out_results`. */
BP_API bp_status bp_registry_add_ops(bp_registry* registry, uint64_t op_count,
                                     const bp_op_desc* ops, uint64_t stride_bytes,
                                     uint32_t* out_ops, bp_add_result* out_results);

/* ---- Targets: devices with their tables ----------------------------------------------------- */

/* One device and the tables that serve it. Lent. Every slot of the tables can be called: what the
 * backend left out returns BP_UNSUPPORTED. Each table has its own `self`. The properties and their
 * strings and lists are copies made by the load, and stay readable after the unload; links behind
 * `next` are the backend's own, and are NULL after the unload.
 *
 * A stream is destroyed only through the `streams` of a target: the host wraps that table, and so
 * learns that the stream has ended. */
typedef struct bp_target {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_TARGET. */
  const void* next;
  const char* name; /* "acme.npu:0". */
  const bp_plugin* plugin;
  bp_registry* registry;
  bp_device* device;
  uint64_t index; /* Its place among the devices of its plugin. */
  const bp_device_properties* properties;
  const bp_device_ops* devices;
  const bp_allocator_ops* allocator;
  const bp_stream_ops* streams;
  const bp_event_ops* events;
  bp_stream* default_stream;

  /* Since 0.2: the tables that a device may do without. These pointers are never NULL either. */
  const bp_device_guard_ops* guard;
  const bp_virtual_memory_ops* virtual_memory;
  const bp_layout_ops* layouts;
  const bp_graph_ops* graphs;
  const bp_compiler_ops* compiler;
  const bp_process_group_ops* process_groups; /* The first of them, if there are several. */
  const bp_profiler_ops* profiler;
  const bp_semaphore_ops* semaphores;
} bp_target;

BP_API uint64_t bp_registry_target_count(const bp_registry* registry);
BP_API const bp_target* bp_registry_target(const bp_registry* registry, uint64_t index);

/* Finds a loaded device by its name: "acme.npu:0", or "npu:0" where that is unique. A name without
 * a number is that of the first device. */
BP_API bp_status bp_registry_find_target(const bp_registry* registry, const char* name,
                                         const bp_target** out_target);

/* The tables of process groups of a device, each with another name, in the order in which the
 * backend added them: 0 if it has none. bp_target_process_groups() returns NULL for an index that
 * does not exist. */
BP_API uint64_t bp_target_process_groups_count(const bp_target* target);
BP_API const bp_process_group_ops* bp_target_process_groups(const bp_target* target,
                                                            uint64_t index);

/* Finds the table of process groups that has this name, such as "mpi": the table_name of the
 * groups' bp_process_group_desc. NULL and "" stand for the first one, whose create() and all other
 * entries return BP_UNSUPPORTED if the device has no process groups. A name that the device does
 * not have is BP_NOT_FOUND, and the text lists the names that it has. */
BP_API bp_status bp_target_find_process_groups(const bp_target* target, const char* name,
                                               const bp_process_group_ops** out_process_groups);

/* Returns 1 if the backend has the table `struct_type`, such as BP_STRUCT_GRAPH_OPS, for the device
 * of `target`, also after the unload. Returns 0 for another type and for NULL. */
BP_API uint32_t bp_target_has_table(const bp_target* target, uint32_t struct_type);

/* ---- Ops ------------------------------------------------------------------------------------ */

/* Lends the description of an op (backplane/operator.h): the same members for every op, so that
 * bridges and tools know none by name. An unknown op is BP_NOT_FOUND. */
BP_API bp_status bp_op_describe(uint32_t op, const bp_op_desc** out_desc);

/* Returns the smallest number above `op` that is the number of an op, or 0 if there is none. This
 * loop visits each op once, those of backplane/ops.h first:
 *
 *   for (op = bp_op_next(0); op != 0; op = bp_op_next(op)) { bp_op_describe(op, &desc); ... }
 *
 * An op that was described at run time is an op while somebody who describes it is loaded. Another
 * thread may unload that plugin between two calls; then bp_op_describe() returns BP_NOT_FOUND. */
BP_API uint32_t bp_op_next(uint32_t op);

/* Checks the inputs and attributes in the frame of `op`, and infers dtype and shape of its outputs,
 * in the order of the frame. Reads no buffers and nothing of outputs, except of those whose shape
 * or dtype is the caller's choice (`fill`, `copy`, `random_bits`, ...). The frame may be that of an
 * older build: it has no outputs that came later. Flags and links of tensors are left to the choice
 * of a kernel. After a failure the content of out_outputs is undefined. */
BP_API bp_status bp_op_infer(uint32_t op, const void* args, uint32_t capacity,
                             bp_op_output* out_outputs, uint32_t* out_count);

/* Calls bp_op_infer(), then checks that the outputs in the frame have these dtypes and shapes, do
 * not overlap themselves, and overlap inputs only where the op allows it. It also checks that a
 * tensor with elements has a buffer, and begins at a multiple of the size of its dtype and not
 * before its buffer. */
BP_API bp_status bp_op_check(uint32_t op, const void* args);

/* Returns 1 if bp_op_check() would return BP_OK, else 0. It builds no text, leaves the error text
 * of the thread as it is, and allocates only for calls with lists: for hosts that try calls and go
 * another way where one is not legal. */
BP_API uint32_t bp_op_is_valid(uint32_t op, const void* args);

/* Returns 1 if the output `out` may be the memory of the input `in`, all of it, and 0 if it may
 * not, or if there is no such op, output or input. Both count the tensor arguments of the op from
 * 0, in the order of the frame; a list is one argument. A call with such tensors still has to be
 * legal: their shapes and element sizes are equal. */
BP_API uint32_t bp_op_can_alias(uint32_t op, uint32_t out, uint32_t in);

/* Calls bp_op_check(), then asks the allocator of `target` whether each tensor ends inside its
 * buffer: a copy of 0 bytes at its end is submitted to the default stream. This is for calls from
 * outside: a launch does not ask. The caller must know that each buffer is one of `target`, as a
 * handle is an address. */
BP_API bp_status bp_op_check_buffers(const bp_target* target, uint32_t op, const void* args);

/* Where a kernel comes from. */
typedef uint32_t bp_kernel_sources;
enum {
  BP_KERNEL_NATIVE = 1u << 0,     /* The backend's own. */
  BP_KERNEL_DECOMPOSED = 1u << 1, /* Other ops: the decomposition of the spec, or the op in f32. */
  /* The tensors are copied to the first device of class host, and back; the call waits for both
   * devices. A failure of the work on the host device, such as an index out of range, becomes the
   * failure of the caller's stream, with the text of the host device. A device without
   * host-signalled events cannot be given a failure: then the launch returns it, and outputs were
   * not written. */
  BP_KERNEL_HOST_FALLBACK = 1u << 2,
};

/* The kernel for a call. Frozen. */
typedef struct bp_kernel_choice {
  const bp_kernel* kernel;
  bp_kernel_sources source; /* One bit. */
  uint32_t reserved;
} bp_kernel_choice;

/* Finds the best kernel for a call: the key is (op, device, dtypes, layout class per tensor, launch
 * flags), and the answer is remembered until a plugin is loaded or unloaded. `sources` limits where
 * the kernel may come from; 0 is what the registry's flags allow. If there is no kernel, it is
 * BP_UNSUPPORTED, and the text is what bp_kernel_explain() gives. Tensors need no buffer. */
BP_API bp_status bp_kernel_find(const bp_target* target, bp_launch_flags flags,
                                bp_kernel_sources sources, uint32_t op, const void* args,
                                bp_kernel_choice* out_choice);

/* Finds the kernels that a launch would need: that of the call, and where the call runs as other
 * ops, those of all of them. It is BP_UNSUPPORTED if one is missing; the text names the op that
 * lacks it. Nothing runs, no memory is allocated, and tensors need no buffer. `sources` is that of
 * bp_kernel_find(), and counts for each part. A kernel may still refuse its launch. This is for
 * hosts that divide a model between devices before they run it. */
BP_API bp_status bp_op_check_kernels(const bp_target* target, bp_launch_flags flags,
                                     bp_kernel_sources sources, uint32_t op, const void* args);

/* Writes a line for each kernel of `op` into `text`: why it is or is not taken for this call. The
 * text ends with a zero byte and is cut at `capacity`; *out_size is what the whole text needs, the
 * zero byte included. */
BP_API bp_status bp_kernel_explain(const bp_target* target, bp_launch_flags flags, uint32_t op,
                                   const void* args, uint64_t capacity, char* text,
                                   uint64_t* out_size);

/* Finds a kernel and launches it on `stream` (NULL: the default stream), with workspace from the
 * cache. If a kernel returns BP_UNSUPPORTED, the next one is tried; any other failure, such as
 * BP_STREAM_FAILED, is returned at once. The frame may be that of an older or newer build. Refuses
 * a tensor with elements that has no buffer, and pointers that are NULL where a call needs them.
 * Checks nothing else of shapes and memory: call
 * bp_op_check_buffers() for what comes from outside. */
BP_API bp_status bp_op_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                              uint32_t op, const void* args);

/* Launches as bp_op_launch() does, with one given kernel, as bp_kernel_find() chose it. */
BP_API bp_status bp_kernel_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                                  const bp_kernel* kernel, const void* args);

BP_API uint64_t bp_target_kernel_count(const bp_target* target);
BP_API const bp_kernel* bp_target_kernel(const bp_target* target, uint64_t index);

/* Returns the number of the op of a kernel, also where the kernel names it; 0 if nobody has
 * described that op yet, and for NULL. */
BP_API uint32_t bp_kernel_op(const bp_kernel* kernel);

/* How calls of one op were served since the registry was made. */
typedef struct bp_dispatch_statistics {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DISPATCH_STATISTICS. */
  const void* next;
  uint64_t native_count;
  uint64_t decomposed_count;
  uint64_t host_fallback_count;
  uint64_t copied_scalar_count; /* Inline scalars that became tensors. */
  uint64_t compiled_count;      /* The part of native_count that ran as programs of one op. */
  uint64_t realigned_count;     /* Calls whose tensors were copied to an aligned place (HEAP-5). */
  uint64_t laid_out_count;      /* Calls whose tensors were converted to layouts (KERNEL-14). */
} bp_dispatch_statistics;

/* Gives the counts of `op` on `target`; op 0 is the sum of all ops. The caller sets struct_size. */
BP_API bp_status bp_target_statistics(const bp_target* target, uint32_t op,
                                      bp_dispatch_statistics* out_statistics);

/* Why calls of one op were served in another way than by kernels of the device alone. */
typedef struct bp_dispatch_reason {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DISPATCH_REASON. */
  const void* next;
  /* What bp_kernel_explain() gave for the first of these calls; for scalars and layouts, which
   * kernel takes which argument as a tensor alone, or in which layout alone. Lives as long as the
   * target. */
  const char* text;
  uint64_t call_count; /* The calls that this reason had, whatever their shapes. */
  uint32_t op;
  /* One bit. BP_KERNEL_NATIVE: inline scalars became tensors, tensors were converted to layouts, or
   * a program of one op was run. */
  bp_kernel_sources source;
} bp_dispatch_reason;

/* Gives the reasons of the calls that bp_target_statistics() counts as decomposed, on the host,
 * realigned, laid out, compiled or with copied scalars, since the registry was made. `index` counts
 * from 0, and a reason keeps its index; an index from the count on is BP_NOT_FOUND. A target has at
 * most 1,024 reasons: the last one of them, of op 0 and source 0, has the calls of all further
 * ones. The caller sets struct_size. */
BP_API uint64_t bp_target_reason_count(const bp_target* target);
BP_API bp_status bp_target_reason(const bp_target* target, uint64_t index,
                                  bp_dispatch_reason* out_reason);

/* ---- Prepared ops: a call that is launched many times ---------------------------------------- */

/* A call whose kernel was chosen, and planned where the kernel can (bp_kernel::prepare). */
typedef struct bp_prepared bp_prepared;

/* Finds the kernel of a call as bp_kernel_find() does, has it make a plan, and packs on `stream`
 * (NULL: the default stream) what `constant_args` names: `constant_arg_count` numbers of tensors
 * whose elements stay as they are until the release, as those of weights do. The tensors of the
 * frame are counted as in bp_prepare_desc (backplane/kernel.h). A number that is given twice, and
 * one that no tensor of the frame has, are BP_INVALID_ARGUMENT, and the text has the number. Packed
 * copies are in memory of the cache, beside the originals. The call may take long: kernels may
 * compile or try algorithms. A kernel without plans is prepared all the same;
 * bp_prepared_get_info() says so. Constant tensors have buffers; the others need none. */
BP_API bp_status bp_op_prepare(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                               uint32_t op, const void* args, const uint32_t* constant_args,
                               uint64_t constant_arg_count, bp_prepared** out_prepared);

/* Launches what was prepared, on `stream` (NULL: the default stream). `args` may differ from the
 * prepared frame only in buffers and offsets of arguments that are not constant: any other
 * difference is BP_INVALID_ARGUMENT, and the text names it. Before a launch on another stream than
 * that of bp_op_prepare(), the caller waits for the latter, once. Any number of threads may launch
 * at once. */
BP_API bp_status bp_prepared_launch(bp_prepared* prepared, bp_stream* stream, const void* args);

typedef struct bp_prepared_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PREPARED_INFO. */
  const void* next;
  const bp_kernel* kernel;
  bp_kernel_sources source; /* One bit. */
  uint32_t has_plan;        /* 0: launches are like those of bp_kernel_launch(). */
  uint64_t packed_size_bytes;
  uint64_t workspace_required_bytes, workspace_preferred_bytes;
  const char* algorithm; /* The plan's, or why there is no plan. It lives as long as `prepared`. */
} bp_prepared_info;

/* The caller sets struct_size. */
BP_API bp_status bp_prepared_get_info(const bp_prepared* prepared, bp_prepared_info* out_info);

/* Ends `prepared`. Work that was submitted goes on. NULL is a no-op. The unload of its plugin ends
 * it too: then launches return BP_DEVICE_LOST, and bp_prepared_release() only frees the handle. */
BP_API bp_status bp_prepared_release(bp_prepared* prepared);

/* ---- The caching allocator ------------------------------------------------------------------ */

/* A part of a cached buffer. The cache makes it; `ref` is constant. The byte_offset of `ref` is a
 * multiple of 512 and is often not 0.
 *
 * A stream may end before its blocks do. Its free blocks, and its blocks that are freed later, are
 * for every stream once the work that was submitted before the destroy has ended. The
 * cache records an event for that, and waits for the event only if memory runs out. If no event can
 * be recorded, the cache keeps the blocks until it has waited for the device, which it does if
 * memory runs out, or until the unload. */
typedef struct bp_block {
  bp_buffer_ref ref;
} bp_block;

/* Takes memory of the first heap for use on `stream` (NULL: the default stream). Freed blocks of
 * the same stream are reused at once. If memory runs out, the cache waits for the work that freed
 * blocks wait for, frees what is cached and tries again; if that fails, it is BP_OUT_OF_MEMORY, and
 * the text has totals, largest free block and fragmentation. A block of 0 bytes has no memory. The
 * content is undefined. On a stream of an open capture (backplane/capture.h), the memory is that of
 * the capture. */
BP_API bp_status bp_block_allocate(const bp_target* target, bp_stream* stream, uint64_t size_bytes,
                                   bp_block** out_block);

/* Gives a block back. Work on its stream may still use it. NULL is a no-op. After the unload of its
 * plugin, and after bp_registry_destroy(), the call only frees the handle and returns BP_OK, on any
 * thread. For a block with memory, bp_block_record_stream() then does nothing, and every other
 * function returns BP_DEVICE_LOST. A second call for the same block is BP_INVALID_ARGUMENT,
 * and changes nothing, until the cache has handed the handle out again, which a later
 * bp_block_allocate() may do, or until the unload; from then on it cannot be detected. */
BP_API bp_status bp_block_free(bp_block* block);

/* Says that `stream`, which is not NULL, uses the block too: its memory is reused only when the
 * work submitted there before bp_block_free() has ended. The stream may end first. A block that was
 * freed is BP_INVALID_ARGUMENT, as long as bp_block_free() would detect it. */
BP_API bp_status bp_block_record_stream(bp_block* block, bp_stream* stream);

typedef struct bp_cache_statistics {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_CACHE_STATISTICS. */
  const void* next;
  uint64_t allocated_bytes, allocated_peak_bytes; /* In blocks that callers hold, rounded up. */
  uint64_t reserved_bytes, reserved_peak_bytes;   /* Taken from the backend. */
  uint64_t requested_bytes;                       /* In blocks that callers hold, as asked for. */
  uint64_t allocation_count, free_count;          /* Blocks handed out; given back. */
  uint64_t backend_allocation_count, backend_free_count;
  uint64_t retry_count, out_of_memory_count;
} bp_cache_statistics;

/* Gives the sums over all heaps and usages, without private pools and wrapped blocks (blocks.h); a
 * peak is the sum of the peaks. The caller sets struct_size. */
BP_API bp_status bp_cache_get_statistics(const bp_target* target,
                                         bp_cache_statistics* out_statistics);

/* Frees all buffers of the cache that hold no block in use, except those that work of an ended
 * stream may still use, and those of private pools; and gives pinned memory (backplane/pinned.h)
 * back that nobody holds and whose work has ended. A buffer that the backend refuses to take back
 * stays in the cache and in its statistics; the first such failure is returned, after all were
 * tried. */
BP_API bp_status bp_cache_empty(const bp_target* target);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_HOST_H_ */
