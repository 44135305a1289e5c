/* Gives a backend kernels for the operators that grown_ops.py grows. The entry of the wrapped
 * backend is compiled under the name wrapped_entry. A kernel computes nothing: it tells the log
 * that it ran, and whether its call gave what the newest revision has. */
#include <stdio.h>
#include <stdlib.h>

#include "backplane/backend.h"
#include "backplane/ops.h"

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

typedef struct grown {
  bp_backend backend; /* The backend as the host sees it. */
  const bp_backend* inner;
  const bp_host* host;
  bp_kernel kernels[COUNT];
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

static bp_status register_all(void* self, const bp_registrar* registrar) {
  /* The free arguments of softmax are x, and since revision 4 the bias too. */
  static const bp_dtype f32[] = {BP_F32, BP_F32};
  grown* g = self;
  const bp_kernel* list[COUNT];
  bp_status status = g->inner->register_all(g->inner->self, registrar);
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
    list[i] = g->kernels + i;
  }
  g->kernels[0].dtype_rows = f32;
  g->kernels[0].dtype_row_count = 1;
  g->kernels[0].dtype_count = IS_GROWN ? 2 : 1;
  if (status != BP_OK) return status;
  return registrar->add_kernels(registrar->self, 0, NULL, COUNT, list, NULL);
}

static bp_status shutdown_instance(void* self, uint64_t timeout_ns) {
  grown* g = self;
  const bp_status status = g->inner->shutdown(g->inner->self, timeout_ns);
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
  g->backend.register_all = register_all;
  g->backend.shutdown = shutdown_instance;
  out_reply->backend = &g->backend;
  return BP_OK;
}
