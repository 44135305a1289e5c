/* Gives a backend kernels for the operators that grown_ops.py grows, an operator of a vendor that
 * has grown as well, and a compiler. The entry of the wrapped backend is compiled under the name
 * wrapped_entry. A kernel computes nothing: it tells the log that it ran, and whether its call gave
 * what the newest revision has.
 *
 * The tables may have another size than the host knows. With headers that future.py has extended,
 * every table, kernel and record has one member more. With SHORT the tables end where they ended in
 * their first release. With CLAIM_WHOLE too, their size says that they have the slots behind this
 * end, which are no functions. */
#include "growth_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bp_backend_entry_fn wrapped_entry;

/* Real kernels never name sizeof or BP_OPS_REVISION. Here both stand for "the newest one", so that
 * this file serves every set of headers. GROWN is defined if the operators have grown. With
 * CLAIM_ALL the kernels claim the newest revision too, but do not look at what it brought, as
 * kernels would that were only compiled again. */
#ifdef GROWN
#define IS_GROWN 1
#else
#define IS_GROWN 0
#endif

typedef struct row {
  const char* name;
  uint32_t op, first_size_bytes, size_bytes;
} row;

#define ROW(name, NAME) \
  { #name, BP_OP_##NAME, BP_##NAME##_ARGS_SIZE_R3, sizeof(bp_##name##_args) }

/* The ops behind gelu are parts of the decomposition of log_softmax, which has no kernel. */
static const row rows[] = {
    ROW(softmax, SOFTMAX), ROW(index_select, INDEX_SELECT),
    ROW(argmax, ARGMAX),   ROW(sort, SORT),
    ROW(gather, GATHER),   ROW(topk, TOPK),
    ROW(scatter, SCATTER), ROW(gelu, GELU),
    ROW(copy, COPY),       ROW(amax, AMAX),
    ROW(sub, SUB),         ROW(exp, EXP),
    ROW(sum, SUM),         ROW(log, LOG),
};
enum { COUNT = sizeof(rows) / sizeof(*rows) };

/* The frame of acme.blur, and its arguments: revision 2 appended the radius. */
typedef struct blur_args {
  uint32_t struct_size, flags;
  const bp_tensor *x, *y;
  int64_t radius;
} blur_args;

#define BLUR_SIZE_R1 24
#define BLUR_SIZE (IS_GROWN ? sizeof(blur_args) : BLUR_SIZE_R1)

#ifdef BP_ABI_SYNTHETIC
/* No host knows this slot, so that none calls it. */
static bp_status appended(void* self, uint64_t value, uint64_t* out_value) {
  (void)self, (void)value, (void)out_value;
  abort();
}

#define APPEND(offer, value) (offer)->appended = (value)
#else
#define APPEND(offer, value) (void)(offer)
#endif

/* Gives a table, whose first release ended with slot `last`, the slots that hosts may not know, or
 * takes those away that came later. */
#define OFFER(table, type, last)                                                       \
  do {                                                                                 \
    APPEND(table, appended);                                                           \
    end_behind(table, (uint32_t)(offsetof(type, last) + sizeof(void*)), sizeof(type)); \
  } while (0)

static void end_behind(void* table, uint32_t size_bytes, size_t whole_bytes) {
#ifdef SHORT
  memset((char*)table + size_bytes, 0x5a, whole_bytes - size_bytes);
#ifndef CLAIM_WHOLE
  ((bp_struct_header*)table)->struct_size = size_bytes;
#endif
#else
  (void)table, (void)size_bytes, (void)whole_bytes;
#endif
}

typedef struct grown {
  bp_backend backend; /* The backend as the host sees it. */
  const bp_backend* inner;
  const bp_host* host;
  bp_registrar registrar; /* The registrar of the host. */
  growth_parts parts;
  void* compiler;
  /* The tables as the host sees them. */
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_compiler_ops compilation;
  bp_kernel kernels[COUNT];
  bp_kernel blur;
  const bp_kernel* list[COUNT + 1];
} grown;

static int has_bytes(const unsigned char* bytes, uint32_t from, uint32_t to) {
  for (; from < to; ++from) {
    if (bytes[from] != 0) return 1;
  }
  return 0;
}

static bp_status launch(const bp_kernel* self, const bp_launch* l, const void* args) {
  const grown* g = self->state;
  const row* r = rows + (self - g->kernels);
  const uint32_t given_bytes = *(const uint32_t*)args;
  const char* what = "";
  char line[64];
  (void)l;
  if (r->op == BP_OP_GELU) {
    if (((const bp_gelu_args*)args)->approximation > BP_GELU_APPROXIMATION_TANH) what = "+";
  } else if (has_bytes(args, r->first_size_bytes, r->size_bytes)) {
    what = "+";
  }
#ifdef CLAIM_ALL
  what = ""; /* The kernel does not know that there is more. */
#endif
  if (given_bytes < r->size_bytes) what = ": BROKEN: its frame is too short";
  if (has_bytes(args, self->args_size_bytes, given_bytes)) what = ": BROKEN: got too much";
  snprintf(line, sizeof(line), "ran %s%s", r->name, what);
  return g->host->log_line(g->host->self, BP_LOG_INFO, line);
}

static bp_status launch_blur(const bp_kernel* self, const bp_launch* l, const void* args) {
  const grown* g = self->state;
  const uint32_t given_bytes = *(const uint32_t*)args;
  const char* what = has_bytes(args, BLUR_SIZE_R1, BLUR_SIZE) ? "+" : "";
  char line[64];
  (void)l;
#ifdef CLAIM_ALL
  what = "";
#endif
  if (given_bytes < BLUR_SIZE) what = ": BROKEN: its frame is too short";
  if (has_bytes(args, self->args_size_bytes, given_bytes)) what = ": BROKEN: got too much";
  snprintf(line, sizeof(line), "ran acme.blur%s", what);
  return g->host->log_line(g->host->self, BP_LOG_INFO, line);
}

static void init_kernels(grown* g) {
  /* The free arguments of softmax are x, and since revision 4 the bias too. */
  static const bp_dtype f32[] = {BP_F32, BP_F32};
  uint32_t i;
  for (i = 0; i < COUNT; ++i) {
    g->kernels[i] = (bp_kernel){.struct_size = sizeof(bp_kernel),
                                .struct_type = BP_STRUCT_KERNEL,
                                .state = g,
                                .name = rows[i].name,
                                .op = rows[i].op,
                                .spec_revision = BP_OPS_REVISION,
                                .args_size_bytes = rows[i].size_bytes,
                                .flags = BP_KERNEL_TAKES_SCALAR | BP_KERNEL_IN_PLACE,
                                .layouts = BP_LAYOUT_ANY,
                                .launch = launch};
    APPEND(g->kernels + i, appended);
    g->list[i] = g->kernels + i;
  }
  g->kernels[0].dtype_rows = f32;
  g->kernels[0].dtype_row_count = 1;
  g->kernels[0].dtype_count = IS_GROWN ? 2 : 1;
  g->blur = g->kernels[1];
  g->blur.name = "acme.blur";
  g->blur.op = 0;
  g->blur.op_name = "acme.blur";
  g->blur.spec_revision = IS_GROWN ? 2 : 1;
  g->blur.args_size_bytes = BLUR_SIZE;
  g->blur.launch = launch_blur;
  g->list[COUNT] = &g->blur;
}

/* Describes acme.blur. A newer build describes it with its radius. */
static bp_status add_blur(const bp_registrar* registrar) {
  const bp_op_argument tensor = {.struct_size = sizeof(bp_op_argument),
                                 .struct_type = BP_STRUCT_OP_ARGUMENT,
                                 .name = "x",
                                 .kind = BP_ARGUMENT_TENSOR,
                                 .offset_bytes = offsetof(blur_args, x),
                                 .dtype_rule = "f32"};
  bp_op_argument arguments[] = {tensor, tensor, tensor};
  bp_op_desc desc = {.struct_size = sizeof(bp_op_desc),
                     .struct_type = BP_STRUCT_OP_DESC,
                     .name = "acme.blur",
                     .doc = "Tests how an operator of a vendor grows.",
                     .since = 1,
                     .revision = IS_GROWN ? 2 : 1,
                     .frame_size_bytes = BLUR_SIZE,
                     .arguments = arguments,
                     .argument_count = IS_GROWN ? 3 : 2,
                     .argument_stride_bytes = sizeof(bp_op_argument)};
  arguments[1].name = "y";
  arguments[1].kind = BP_ARGUMENT_OUT;
  arguments[1].offset_bytes = offsetof(blur_args, y);
  arguments[1].dtype_rule = "like(x)";
  arguments[1].shape_rule = "x.shape";
  arguments[2] = (bp_op_argument){.struct_size = sizeof(bp_op_argument),
                                  .struct_type = BP_STRUCT_OP_ARGUMENT,
                                  .name = "radius",
                                  .kind = BP_ARGUMENT_I64,
                                  .offset_bytes = offsetof(blur_args, radius),
                                  .since = 2};
  return registrar->add_ops(registrar->self, 1, &desc, sizeof(desc), NULL, NULL);
}

/* The backend whose registration runs on this thread. The registrar keeps the host's own `self`, so
 * that its other slots work as they are. */
static _Thread_local grown* current;

static bp_status add_device(void* self, uint64_t count, bp_device* const* list,
                            const bp_device_ops* devices, bp_add_result* out_result) {
  grown* g = current;
  const bp_device_properties* properties = NULL;
  uint64_t device_count = 0;
  g->parts.devices = devices;
  g->devices = *devices;
  OFFER(&g->devices, bp_device_ops, set_option);
  devices->enumerate(devices->self, 1, &g->parts.device, &device_count);
  if (devices->properties(devices->self, g->parts.device, &properties) == BP_OK) {
    APPEND((bp_device_properties*)properties, 77); /* The memory is the instance's own. */
  }
  return g->registrar.add_device(self, count, list, &g->devices, out_result);
}

static bp_status add_allocator(void* self, uint64_t count, bp_device* const* list,
                               const bp_allocator_ops* allocator, bp_add_result* out_result) {
  grown* g = current;
  g->parts.allocator = allocator;
  g->allocator = *allocator;
  OFFER(&g->allocator, bp_allocator_ops, fill);
  return g->registrar.add_allocator(self, count, list, &g->allocator, out_result);
}

static bp_status add_streams(void* self, uint64_t count, bp_device* const* list,
                             const bp_stream_ops* streams, const bp_event_ops* events,
                             bp_add_result* out_result) {
  grown* g = current;
  g->parts.streams = streams;
  g->parts.events = events;
  g->streams = *streams;
  g->events = *events;
  OFFER(&g->streams, bp_stream_ops, add_callback);
  OFFER(&g->events, bp_event_ops, signal);
  return g->registrar.add_streams(self, count, list, &g->streams, &g->events, out_result);
}

static bp_status add_kernels(grown* g) {
  const bp_status status = add_blur(&g->registrar);
  if (status != BP_OK) return status;
  return g->registrar.add_kernels(g->registrar.self, 0, NULL, COUNT + 1, g->list, NULL);
}

static bp_status add_compiler(grown* g) {
  g->parts.host = g->host;
  g->parts.kernels = g->list;
  g->parts.kernel_count = COUNT;
  g->compiler = growth_make_compiler(&g->parts, &g->compilation);
  g->compilation.struct_size = sizeof(g->compilation);
  OFFER(&g->compilation, bp_compiler_ops, release);
  return g->registrar.add_compiler(g->registrar.self, 0, NULL, &g->compilation, NULL);
}

static bp_status register_all(void* self, const bp_registrar* registrar) {
  grown* g = self;
  const uint32_t first = offsetof(bp_registrar, add_ops) + sizeof(void*);
  bp_registrar ours;
  bp_status status = bp_struct_read(registrar, first, &g->registrar, sizeof(bp_registrar), NULL);
  if (status != BP_OK) return status;
  ours = g->registrar;
  ours.add_device = add_device;
  ours.add_allocator = add_allocator;
  ours.add_streams = add_streams;
  current = g;
  status = g->inner->register_all(g->inner->self, &ours);
  current = NULL;
  init_kernels(g);
  if (status == BP_OK) status = add_kernels(g);
  return status == BP_OK ? add_compiler(g) : status;
}

static bp_status shutdown_instance(void* self, uint64_t timeout_ns) {
  grown* g = self;
  bp_status status;
  growth_end_compiler(g->compiler);
  g->compiler = NULL;
  status = g->inner->shutdown(g->inner->self, timeout_ns);
  if (status != BP_TIMEOUT) free(g);
  return status;
}

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  grown* g;
  const bp_status status = wrapped_entry(request, out_reply);
  if (status != BP_OK) return status;
  g = calloc(1, sizeof(grown));
  if (g == NULL) abort();
  g->inner = out_reply->backend;
  g->host = request->host;
  g->backend = *g->inner;
  g->backend.self = g;
  g->backend.name = IS_GROWN ? "acme.grown" : "acme.now"; /* One host may load both. */
  g->backend.register_all = register_all;
  g->backend.shutdown = shutdown_instance;
  APPEND(&g->backend, appended);
  out_reply->backend = &g->backend;
  return BP_OK;
}
