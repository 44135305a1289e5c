/* vendor_op.c - calls the ops of a vendor by their descriptions, on each device that is loaded.
 *
 * The program includes no header of the vendor: names, places and dtypes come from
 * bp_op_describe(). On the vendor's chip its kernels run the ops. On each other device the host
 * runs their decompositions.
 *
 * usage: 05_vendor_op CHIP [BACKEND...]    names or paths of plugins; the first describes the ops
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backplane/host.h"

enum { kRows = 2, kInner = 3, kColumns = 4, kMaxTensors = 4 };

/* Prints why `what` failed, and returns 1, so that a caller can stop. */
static int failed(bp_status status, const char* what) {
  if (status == BP_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, bp_status_name(status), bp_error_text());
  return 1;
}

/* One tensor argument of a call: what the program knows of it, and its memory on a device. */
typedef struct argument {
  const char* name;
  const void* elements; /* NULL for the output. */
  int64_t shape[2];
  int64_t strides[2];
  bp_dtype dtype;
  bp_tensor tensor;
  bp_block* block;
} argument;

static uint64_t size_of(const argument* a) {
  return (uint64_t)(a->shape[0] * a->shape[1]) * bp_dtype_bits(a->dtype) / 8;
}

static bp_status place(const bp_target* target, argument* a) {
  const bp_allocator_ops* memory = target->allocator;
  bp_buffer_ref range;
  bp_status status = bp_block_allocate(target, NULL, size_of(a), &a->block);
  if (status != BP_OK) return status;
  a->strides[0] = a->shape[1];
  a->strides[1] = 1;
  a->tensor = (bp_tensor){.buffer = a->block->ref.buffer,
                          .byte_offset = a->block->ref.byte_offset,
                          .shape = a->shape,
                          .strides = a->strides,
                          .ndim = 2,
                          .dtype = a->dtype};
  if (a->elements == NULL) return BP_OK;
  range = a->block->ref;
  range.size_bytes = size_of(a);
  return memory->copy_from_host(memory->self, target->default_stream, &range, a->elements,
                                BP_BORROW_DURING_CALL);
}

/* Returns the place of an argument in the frame; 0 if the op has no such argument. */
static uint32_t offset_of(const bp_op_desc* op, const char* name) {
  for (uint64_t i = 0; i < op->argument_count; ++i) {
    const char* const at = (const char*)op->arguments + i * op->argument_stride_bytes;
    const bp_op_argument* const a = (const bp_op_argument*)(const void*)at;
    if (strcmp(a->name, name) == 0) return a->offset_bytes;
  }
  fprintf(stderr, "%s has no argument %s\n", op->name, name);
  return 0;
}

/* Calls the op with a frame that is built from its description. The last argument is the output,
 * whose elements go to `out`. */
static int call(const bp_target* target, const bp_op_desc* op, int count, argument* arguments,
                void* out) {
  const bp_allocator_ops* memory = target->allocator;
  uint64_t frame[64] = {0};
  argument* const y = &arguments[count - 1];
  bp_buffer_ref range;
  int result = 0;
  if (op->frame_size_bytes > sizeof(frame)) return 1;
  memcpy(frame, &op->frame_size_bytes, sizeof(op->frame_size_bytes));
  for (int i = 0; i < count; ++i) arguments[i].block = NULL;
  for (int i = 0; i < count && result == 0; ++i) {
    const bp_tensor* const tensor = &arguments[i].tensor;
    const uint32_t offset = offset_of(op, arguments[i].name);
    result = offset == 0 || failed(place(target, &arguments[i]), "place");
    memcpy((char*)frame + offset, &tensor, sizeof(tensor));
  }
  if (result == 0) result = failed(bp_op_launch(target, NULL, 0, op->op, frame), op->name);
  if (result == 0) {
    range = y->block->ref;
    range.size_bytes = size_of(y);
    result = failed(memory->copy_to_host(memory->self, target->default_stream, out, &range,
                                         BP_BORROW_DURING_CALL, UINT64_MAX),
                    "copy to the host");
  }
  for (int i = 0; i < count; ++i) bp_block_free(arguments[i].block);
  return result;
}

/* Says who ran the calls of `op` on the target. */
static int print_source(const bp_target* target, const bp_op_desc* op) {
  bp_dispatch_statistics served = {.struct_size = sizeof(served),
                                   .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  if (failed(bp_target_statistics(target, op->op, &served), "statistics")) return 1;
  printf("  (%llu native, %llu decomposed, %llu on the host)\n",
         (unsigned long long)served.native_count, (unsigned long long)served.decomposed_count,
         (unsigned long long)served.host_fallback_count);
  return 0;
}

static int add(const bp_target* target, const bp_op_desc* op) {
  const uint8_t a[4] = {250, 100, 0, 255}, b[4] = {10, 100, 0, 255};
  const uint8_t expected[4] = {255, 200, 0, 255};
  uint8_t sum[4];
  argument arguments[] = {{.name = "a", .elements = a, .shape = {2, 2}, .dtype = BP_U8},
                          {.name = "b", .elements = b, .shape = {2, 2}, .dtype = BP_U8},
                          {.name = "y", .shape = {2, 2}, .dtype = BP_U8}};
  if (call(target, op, 3, arguments, sum)) return 1;
  printf("%s: %s:", target->name, op->name);
  for (int i = 0; i < 4; ++i) printf(" %d+%d=%d", a[i], b[i], sum[i]);
  if (print_source(target, op)) return 1;
  return memcmp(sum, expected, sizeof(sum)) != 0;
}

static double dot(const float* x, const float* w) {
  double sum = 0;
  for (int i = 0; i < kInner; ++i) sum += (double)x[i] * (double)w[i];
  return sum;
}

static int gate(const bp_target* target, const bp_op_desc* op) {
  float x[kRows * kInner], w[2][kColumns * kInner], y[kRows * kColumns];
  double largest = 0;
  argument arguments[] = {
      {.name = "x", .elements = x, .shape = {kRows, kInner}, .dtype = BP_F32},
      {.name = "gate", .elements = w[0], .shape = {kColumns, kInner}, .dtype = BP_F32},
      {.name = "up", .elements = w[1], .shape = {kColumns, kInner}, .dtype = BP_F32},
      {.name = "y", .shape = {kRows, kColumns}, .dtype = BP_F32}};
  for (int i = 0; i < kRows * kInner; ++i) x[i] = (float)i / 4 - 0.5f;
  for (int i = 0; i < kColumns * kInner; ++i)
    w[0][i] = (float)(i % 5) - 2, w[1][i] = 1.5f - (float)i / 8;
  if (call(target, op, 4, arguments, y)) return 1;
  for (int i = 0; i < kRows * kColumns; ++i) {
    const float* const row = x + i / kColumns * kInner;
    const double left = dot(row, w[0] + i % kColumns * kInner);
    const double right = dot(row, w[1] + i % kColumns * kInner);
    largest = fmax(largest, fabs(left / (1 + exp(-left)) * right - (double)y[i]));
  }
  printf("%s: %s: the largest error is %.1e", target->name, op->name, largest);
  if (print_source(target, op)) return 1;
  return !(largest < 1e-5);
}

static int run(bp_registry* registry, int count, char** plugins) {
  static int (*const kCalls[])(const bp_target*, const bp_op_desc*) = {add, gate};
  static const char* const kNames[] = {"acme.saturating_add", "acme.swiglu_linear"};
  for (int i = 0; i < count; ++i) {
    const bp_plugin* plugin = NULL;
    if (failed(bp_registry_load(registry, plugins[i], 0, NULL, &plugin), plugins[i])) return 1;
    /* A description or a kernel that the host rejects stands here, with the reason. */
    fputs(plugin->refusals, stderr);
  }
  for (int n = 0; n < 2; ++n) {
    const bp_op_desc* op = NULL;
    const uint32_t number = bp_op_from_name(kNames[n]);
    if (number == 0) {
      fprintf(stderr, "%s: no plugin that was loaded describes this op\n", kNames[n]);
      return 1;
    }
    if (failed(bp_op_describe(number, &op), kNames[n])) return 1;
    printf("%s: %s\n%s\n", op->name, op->doc, op->decomposition);
    for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
      if (kCalls[n](bp_registry_target(registry, i), op)) return 1;
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  const int is_help = argc == 2 && strcmp(argv[1], "--help") == 0;
  bp_registry* registry = NULL;
  int result;
  if (argc < 2 || argv[1][0] == '-') {
    fprintf(is_help ? stdout : stderr, "usage: %s CHIP [BACKEND...]\n", argv[0]);
    return is_help ? 0 : 2;
  }
  if (failed(bp_registry_create(NULL, &registry), "registry")) return 1;
  result = run(registry, argc - 1, argv + 1);
  if (failed(bp_registry_destroy(registry), "destroy")) return 1;
  return result;
}
