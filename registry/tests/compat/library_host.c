/* A program that uses a backend through libbackplane, and knows only the headers that it is
 * compiled with: those of now, or those of a released minor. api/tests/compat/matrix.py builds and
 * runs it.
 *
 * usage: library_host BACKEND
 *
 * Prints one line: "served 0.1", "refused: why" or "FAILED: what". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backplane/host.h"
#include "exercise.h"

#define COUNT 1000 /* The number of elements of a test tensor. */

static void load(bp_registry* registry, const char* path, const bp_plugin** out_plugin) {
  const bp_status status = bp_registry_load(registry, path, 0, NULL, out_plugin);
  if (status == BP_INCOMPATIBLE) {
    printf("refused: %s\n", bp_error_text());
    exit(0);
  }
  snprintf(words, sizeof(words), "%s", bp_error_text());
  expect_ok(status, "bp_registry_load");
  expect((*out_plugin)->refusals[0] == 0, (*out_plugin)->refusals);
}

/* Launches through libbackplane, with memory of its cache. */
static void launch_add(const bp_target* target) {
  const int64_t shape[1] = {COUNT}, strides[1] = {1};
  bp_add_args args = {.struct_size = sizeof(args)};
  float values[3 * COUNT];
  bp_tensor tensors[3];
  bp_block* block = NULL;
  int i;
  expect_ok(bp_block_allocate(target, NULL, sizeof(values), &block), "bp_block_allocate");
  for (i = 0; i < 3 * COUNT; ++i) values[i] = (float)i;
  for (i = 0; i < 3; ++i) {
    tensors[i] =
        (bp_tensor){.buffer = block->ref.buffer,
                    .byte_offset = block->ref.byte_offset + sizeof(float) * COUNT * (uint64_t)i,
                    .shape = shape,
                    .strides = strides,
                    .ndim = 1,
                    .dtype = BP_F32};
  }
  args.a = tensors;
  args.b = tensors + 1;
  args.y = tensors + 2;
  const bp_buffer_ref range = {block->ref.buffer, block->ref.byte_offset, sizeof(values)};
  const bp_allocator_ops* a = target->allocator;
  expect_ok(
      a->copy_from_host(a->self, target->default_stream, &range, values, BP_BORROW_DURING_CALL),
      "copy_from_host");
  expect_ok(bp_op_launch(target, NULL, 0, BP_OP_ADD, &args), "bp_op_launch");
  expect_ok(a->copy_to_host(a->self, target->default_stream, values, &range,
                            BP_BORROW_DURING_CALL FOREVER),
            "copy_to_host");
  for (i = 0; i < COUNT; ++i) {
    expect(values[2 * COUNT + i] == (float)(2 * i + COUNT), "the sum of bp_op_launch is wrong");
  }
  expect_ok(bp_block_free(block), "bp_block_free");
}

static const bp_kernel* find_add(const bp_target* target) {
  uint64_t i;
  for (i = 0; i < bp_target_kernel_count(target); ++i) {
    const bp_kernel* kernel = bp_target_kernel(target, i);
    if (kernel->op == BP_OP_ADD) return kernel;
  }
  failed("the target has no kernel of add");
  return NULL;
}

static void check_statistics(const bp_target* target) {
  bp_dispatch_statistics dispatch = {.struct_size = sizeof(dispatch),
                                     .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  bp_cache_statistics cache = {.struct_size = sizeof(cache),
                               .struct_type = BP_STRUCT_CACHE_STATISTICS};
  expect_ok(bp_target_statistics(target, BP_OP_ADD, &dispatch), "bp_target_statistics");
  expect(dispatch.native_count == 1, "add was not counted as one native launch");
  expect_ok(bp_cache_get_statistics(target, &cache), "bp_cache_get_statistics");
  expect(cache.allocation_count == 1 && cache.free_count == 1, "the cache did not count a block");
}

int main(int argc, char** argv) {
  const bp_registry_desc desc = {.struct_size = sizeof(desc),
                                 .struct_type = BP_STRUCT_REGISTRY_DESC,
                                 .flags = BP_REGISTRY_IGNORE_ENVIRONMENT};
  bp_registry* registry = NULL;
  const bp_plugin* plugin = NULL;
  if (argc != 2) failed("usage: library_host BACKEND");
  expect_ok(bp_registry_create(&desc, &registry), "bp_registry_create");
  load(registry, argv[1], &plugin);
  const uint32_t major = plugin->abi_major, minor = plugin->abi_minor;
  const bp_target* target = bp_registry_target(registry, 0);
  expect(target != NULL, "there is no target");
  const tables t = {.device = target->device,
                    .devices = *target->devices,
                    .allocator = *target->allocator,
                    .streams = *target->streams,
                    .events = *target->events,
                    .profiler = *target->profiler,
                    .add = find_add(target)};
  exercise(&t, VERSION(major, minor));
  launch_add(target);
  check_statistics(target);
  expect_ok(bp_registry_unload(registry, plugin FOREVER), "bp_registry_unload");
  expect_ok(bp_registry_destroy(registry), "bp_registry_destroy");
  printf("served %u.%u\n", (unsigned)major, (unsigned)minor);
  return 0;
}
