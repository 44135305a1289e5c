/* A program that launches the operators which grown_ops.py grows, and knows only the headers that
 * it is compiled with. growth.py runs it with libraries and backends of other headers.
 *
 * usage: growth BACKEND [LAYERS LAYER_OPTIONS]    GROWN is defined if the headers have what is new.
 *        growth BACKEND BACKEND                   Both are loaded; it only calls acme.blur.
 *        growth manifests FOLDER                  Prints "NAME: ok", or why it cannot be used.
 *
 * Prints the version of the backend, and a line for each call:
 * "softmax.window: served by softmax+" or "softmax.window: refused: why". A call whose name has a
 * dot gives what is new. A line "NAME checked: " tells what bp_op_check() says of the frame. A line
 * "NAME program: " tells the same as the first of a program whose only node is the call: the
 * compiler of the backend serves or refuses it. The line "tables read: " tells whether the host's
 * tables are as long as the program knows them, and how many slots answer as absent ones must. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backplane/host.h"
#include "backplane/ops.h"

static char ran[512]; /* What the kernels said since the call. */

static void take_line(void* user_data, bp_log_level level, const char* source,
                      const char* message) {
  (void)user_data, (void)level, (void)source;
  if (strncmp(message, "ran ", 4) != 0) return;
  snprintf(ran + strlen(ran), sizeof(ran) - strlen(ran), " %s", message + 4);
}

static void expect_ok(bp_status status, const char* what) {
  if (status == BP_OK) return;
  printf("FAILED: %s: %s\n", what, bp_error_text());
  exit(1);
}

/* Prints the error text on one line. */
static void print_error(void) {
  const char* c;
  for (c = bp_error_text(); *c != 0; ++c) putchar(*c == '\n' ? '|' : *c);
  putchar('\n');
}

static const bp_target* target;

#include "growth_programs.h"

static void run(const char* name, uint32_t op, const void* args) {
  printf("%s checked: ", name);
  if (bp_op_check(op, args) == BP_OK) {
    puts("ok");
  } else {
    print_error();
  }
  ran[0] = 0;
  printf("%s: ", name);
  if (bp_op_launch(target, NULL, 0, op, args) == BP_OK) {
    printf("served by%s\n", ran);
  } else {
    printf("refused: ");
    print_error();
  }
}

static bp_block* block;

/* Returns a tensor of 2 by 3 elements of 4 bytes, or 8 if they are i64. */
static bp_tensor make(uint64_t place, bp_dtype dtype, uint32_t ndim) {
  static const int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  return (bp_tensor){.buffer = block->ref.buffer,
                     .byte_offset = block->ref.byte_offset + 64 * place,
                     .shape = shape,
                     .strides = strides + 2 - ndim,
                     .ndim = ndim,
                     .dtype = dtype};
}

static void run_softmax(bp_tensor* x, bp_tensor* y) {
  bp_softmax_args args = {.struct_size = sizeof(args), .x = x, .y = y, .axis = 1};
  bp_log_softmax_args log_args = {.struct_size = sizeof(log_args), .x = x, .y = y, .axis = 1};
  run("softmax", BP_OP_SOFTMAX, &args);
  run_program("softmax", BP_OP_SOFTMAX, &args, x, y, NULL);
  run("log_softmax", BP_OP_LOG_SOFTMAX, &log_args);
#ifdef GROWN
  args.window = 2;
  run("softmax.window", BP_OP_SOFTMAX, &args);
  run_program("softmax.window", BP_OP_SOFTMAX, &args, x, y, NULL);
  args.window = 0;
  args.bias = x;
  run("softmax.bias", BP_OP_SOFTMAX, &args);
  run_program("softmax.bias", BP_OP_SOFTMAX, &args, x, y, x);
  log_args.window = 2;
  run("log_softmax.window", BP_OP_LOG_SOFTMAX, &log_args);
#endif
}

static void run_gelu(bp_tensor* x, bp_tensor* y) {
  bp_gelu_args args = {
      .struct_size = sizeof(args), .x = x, .y = y, .approximation = BP_GELU_APPROXIMATION_TANH};
  run("gelu", BP_OP_GELU, &args);
  run_program("gelu", BP_OP_GELU, &args, x, y, NULL);
#ifdef GROWN
  args.approximation = BP_GELU_APPROXIMATION_SIGMOID;
  run("gelu.sigmoid", BP_OP_GELU, &args);
  run_program("gelu.sigmoid", BP_OP_GELU, &args, x, y, NULL);
#endif
}

/* Runs the ops whose results are chosen by order. */
static void run_order(bp_tensor* x, bp_tensor* y) {
  const bp_tensor index = make(2, BP_I64, 1);
  bp_argmax_args argmax = {.struct_size = sizeof(argmax), .x = x, .y = &index, .axis = 1};
  bp_sort_args sort = {.struct_size = sizeof(sort), .x = x, .y = y, .axis = 1};
  bp_topk_args topk = {.struct_size = sizeof(topk), .x = x, .y = y, .k = 3, .axis = 1};
  run("argmax", BP_OP_ARGMAX, &argmax);
  run("sort", BP_OP_SORT, &sort);
  run_program("sort", BP_OP_SORT, &sort, x, y, NULL);
  run("topk", BP_OP_TOPK, &topk);
#ifdef GROWN
  const bp_tensor mask = make(3, BP_BOOL, 2), largest = make(4, BP_F32, 1);
  const int64_t keys[] = {1};
  argmax.mask = &mask;
  run("argmax.mask", BP_OP_ARGMAX, &argmax);
  argmax.mask = NULL;
  argmax.largest = &largest;
  run("argmax.largest", BP_OP_ARGMAX, &argmax);
  sort.keys_count = 1;
  sort.keys = keys;
  run("sort.keys", BP_OP_SORT, &sort);
  run_program("sort.keys", BP_OP_SORT, &sort, x, y, NULL);
  topk.floor_scalar = (bp_scalar){.dtype = BP_I64, .bits = 0};
  run("topk.floor", BP_OP_TOPK, &topk);
#endif
}

/* Runs the ops that read indices. */
static void run_indices(const bp_tensor* x, const bp_tensor* y) {
  const bp_tensor indices = make(2, BP_I64, 2), line = make(2, BP_I64, 1);
  bp_gather_args gather = {
      .struct_size = sizeof(gather), .x = x, .indices = &indices, .y = y, .axis = 1};
  bp_scatter_args scatter = {
      .struct_size = sizeof(scatter), .x = x, .indices = &indices, .src = x, .y = y, .axis = 1};
  bp_index_select_args select = {
      .struct_size = sizeof(select), .x = x, .indices = &line, .y = y, .axis = 0};
  run("gather", BP_OP_GATHER, &gather);
  run("scatter", BP_OP_SCATTER, &scatter);
  run("index_select", BP_OP_INDEX_SELECT, &select);
#ifdef GROWN
  const bp_tensor* const others[] = {x};
  gather.others_count = 1;
  gather.others = others;
  run("gather.others", BP_OP_GATHER, &gather);
  scatter.scale_scalar = (bp_scalar){.dtype = BP_I64, .bits = 2};
  run("scatter.scale", BP_OP_SCATTER, &scatter);
  select.order = BP_INDEX_SELECT_ORDER_SORTED;
  run("index_select.order", BP_OP_INDEX_SELECT, &select);
#endif
}

/* A caller gives room for the outputs that its headers know, and gets no more. */
static void check_inference(const bp_tensor* x) {
#ifdef GROWN
  const uint32_t capacity = 2;
#else
  const uint32_t capacity = 1;
#endif
  bp_argmax_args argmax = {.struct_size = sizeof(argmax), .x = x, .axis = 1};
  bp_op_output outputs[2];
  uint32_t count = 0;
  expect_ok(bp_op_infer(BP_OP_ARGMAX, &argmax, capacity, outputs, &count), "bp_op_infer");
  printf("inferred: %u of %u\n", (unsigned)count, (unsigned)capacity);
}

/* Returns 1 for a call of a slot that the backend does not offer. */
static unsigned is_absent(bp_status status, const char* slot) {
  char words[128];
  snprintf(words, sizeof(words), "%s is not offered by this backend", slot);
  return status == BP_UNSUPPORTED && strcmp(bp_error_text(), words) == 0;
}

/* The backend offers none of the slots that came behind the first release of its tables. */
static void check_tables(void) {
  const bp_allocator_ops* m = target->allocator;
  const bp_stream_ops* s = target->streams;
  const bp_event_ops* e = target->events;
  const int is_whole = target->devices->struct_size == sizeof(bp_device_ops) &&
                       m->struct_size == sizeof(*m) && s->struct_size == sizeof(*s) &&
                       e->struct_size == sizeof(*e) &&
                       target->compiler->struct_size == sizeof(bp_compiler_ops);
  const unsigned count =
      is_absent(m->wrap_address(m->self, NULL, 0, 0, NULL), "memory.wrap_address") +
      is_absent(m->address_info(m->self, 0, NULL), "memory.address_info") +
      is_absent(m->export_buffer(m->self, NULL, 0, NULL), "memory.export_buffer") +
      is_absent(m->import_buffer(m->self, NULL, NULL, NULL), "memory.import_buffer") +
      is_absent(s->wrap_native(s->self, NULL, NULL, NULL), "stream.wrap_native") +
      is_absent(s->native_handle(s->self, NULL, NULL), "stream.native_handle") +
      is_absent(e->export_event(e->self, NULL, 0, NULL), "event.export_event") +
      is_absent(e->import_event(e->self, NULL, NULL, NULL), "event.import_event");
  printf("tables read: %s, %u absent\n", is_whole ? "whole" : "of another size", count);
}

/* Runs the op of a vendor, which only its backends describe. `prefix` begins the names. */
static void run_blur(const bp_tensor* x, const bp_tensor* y, const char* prefix) {
  struct {
    uint32_t struct_size, flags;
    const bp_tensor *x, *y;
#ifdef GROWN
    int64_t radius;
#endif
  } args = {.struct_size = sizeof(args), .x = x, .y = y};
  const uint32_t op = bp_op_from_name("acme.blur");
  char name[64];
  snprintf(name, sizeof(name), "%sblur", prefix);
  run(name, op, &args);
#ifdef GROWN
  args.radius = 2;
  snprintf(name, sizeof(name), "%sblur.radius", prefix);
  run(name, op, &args);
#endif
}

/* Calls acme.blur on the devices of two backends that describe it in different revisions, then on
 * the first after the other has gone. */
static int run_pair(bp_registry* registry, const char* first, const char* second) {
  const bp_plugin *plugin = NULL, *other = NULL;
  bp_tensor x, y;
  uint64_t i;
  expect_ok(bp_registry_load(registry, first, 0, NULL, &plugin), "bp_registry_load");
  expect_ok(bp_registry_load(registry, second, 0, NULL, &other), "bp_registry_load");
  if (plugin->refusals[0] != 0) printf("FAILED: %s\n", plugin->refusals);
  if (other->refusals[0] != 0) printf("FAILED: %s\n", other->refusals);
  for (i = 0; i < 3; ++i) {
    static const char* const prefixes[] = {"first ", "second ", "left "};
    target = bp_registry_target(registry, i % 2);
    if (i == 2) expect_ok(bp_registry_unload(registry, other, UINT64_MAX), "bp_registry_unload");
    expect_ok(bp_block_allocate(target, NULL, 4096, &block), "bp_block_allocate");
    x = make(0, BP_F32, 2);
    y = make(1, BP_F32, 2);
    run_blur(&x, &y, prefixes[i]);
    expect_ok(bp_block_free(block), "bp_block_free");
  }
  expect_ok(bp_registry_unload(registry, plugin, UINT64_MAX), "bp_registry_unload");
  expect_ok(bp_registry_destroy(registry), "bp_registry_destroy");
  return 0;
}

static int print_manifests(bp_registry* registry) {
  uint64_t count = 0, i;
  expect_ok(bp_registry_discover(registry, &count), "bp_registry_discover");
  for (i = 0; i < count; ++i) {
    const bp_manifest* manifest = NULL;
    expect_ok(bp_registry_manifest(registry, i, &manifest), "bp_registry_manifest");
    printf("%s: %s\n", manifest->name, manifest->problem == NULL ? "ok" : manifest->problem);
  }
  expect_ok(bp_registry_destroy(registry), "bp_registry_destroy");
  return 0;
}

int main(int argc, char** argv) {
  bp_registry_desc desc = {.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_REGISTRY_DESC,
                           .flags = BP_REGISTRY_IGNORE_ENVIRONMENT,
                           .log_line = take_line};
  bp_registry* registry = NULL;
  const bp_plugin* plugin = NULL;
  if (argc < 2 || argc > 4) return 2;
  desc.layers = argc == 4 ? argv[2] : "";
  desc.layer_options = argc == 4 ? argv[3] : NULL;
  const int lists = argc == 3 && strcmp(argv[1], "manifests") == 0;
  desc.search_path = lists ? argv[2] : "";
  expect_ok(bp_registry_create(&desc, &registry), "bp_registry_create");
  if (lists) return print_manifests(registry);
  if (argc == 3) return run_pair(registry, argv[1], argv[2]);
  expect_ok(bp_registry_load(registry, argv[1], 0, NULL, &plugin), "bp_registry_load");
  if (plugin->refusals[0] != 0) printf("FAILED: %s\n", plugin->refusals);
  printf("loaded ABI: %u.%u\n", (unsigned)plugin->abi_major, (unsigned)plugin->abi_minor);
  target = bp_registry_target(registry, 0);
  expect_ok(bp_block_allocate(target, NULL, 4096, &block), "bp_block_allocate");
  bp_tensor x = make(0, BP_F32, 2), y = make(1, BP_F32, 2);
  run_softmax(&x, &y);
  run_gelu(&x, &y);
  run_order(&x, &y);
  run_indices(&x, &y);
  run_blur(&x, &y, "");
  check_inference(&x);
  check_tables();
  expect_ok(bp_block_free(block), "bp_block_free");
  expect_ok(bp_registry_unload(registry, plugin, UINT64_MAX), "bp_registry_unload");
  expect_ok(bp_registry_destroy(registry), "bp_registry_destroy");
  return 0;
}
