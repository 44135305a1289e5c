/* 01_hello_abi.c - the whole ABI in one page: load a backend, allocate, copy, launch, read back.
 *
 * The program is plain C over backplane/host.h. It builds alone against an installed package:
 *
 *   find_package(Backplane 0.4 REQUIRED)
 *   add_executable(01_hello_abi 01_hello_abi.c)
 *   target_link_libraries(01_hello_abi PRIVATE backplane::registry)
 *
 * usage: 01_hello_abi [BACKEND]     a name such as "cpu", or the path of a plugin; default "cpu"
 */
#include <stdio.h>
#include <string.h>

#include "backplane/host.h"
#include "backplane/ops.h"

enum { kCount = 4 };

/* Prints why `what` failed, and returns 1, so that a caller can stop. */
static int failed(bp_status status, const char* what) {
  if (status == BP_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, bp_status_name(status), bp_error_text());
  return 1;
}

/* Computes y = a + b for three blocks of kCount floats on `target`. */
static bp_status launch_add(const bp_target* target, const bp_block* a, const bp_block* b,
                            const bp_block* y) {
  const int64_t shape[] = {kCount};
  const int64_t strides[] = {1};
  bp_tensor tensors[3];
  const bp_block* blocks[] = {a, b, y};
  for (int i = 0; i < 3; ++i) {
    tensors[i] = (bp_tensor){.buffer = blocks[i]->ref.buffer,
                             .byte_offset = blocks[i]->ref.byte_offset,
                             .shape = shape,
                             .strides = strides,
                             .ndim = 1,
                             .dtype = BP_F32};
  }
  const bp_add_args args = {
      .struct_size = sizeof(args), .a = &tensors[0], .b = &tensors[1], .y = &tensors[2]};
  return bp_op_launch(target, NULL, 0, BP_OP_ADD, &args);
}

/* Fills a and b from the host, adds them on the device, and prints the result. */
static int add_and_print(const bp_target* target, bp_block* const blocks[3]) {
  const bp_allocator_ops* memory = target->allocator;
  const float values[2][kCount] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  float sum[kCount];
  bp_buffer_ref range[3];
  for (int i = 0; i < 3; ++i) {
    range[i] = blocks[i]->ref;
    range[i].size_bytes = sizeof(sum);
  }
  for (int i = 0; i < 2; ++i) {
    if (failed(memory->copy_from_host(memory->self, target->default_stream, &range[i], values[i],
                                      BP_BORROW_DURING_CALL),
               "copy to the device")) {
      return 1;
    }
  }
  if (failed(launch_add(target, blocks[0], blocks[1], blocks[2]), "add")) return 1;
  if (failed(memory->copy_to_host(memory->self, target->default_stream, sum, &range[2],
                                  BP_BORROW_DURING_CALL, UINT64_MAX),
             "copy to the host")) {
    return 1;
  }
  for (int i = 0; i < kCount; ++i) printf("%g + %g = %g\n", values[0][i], values[1][i], sum[i]);
  return 0;
}

static int run(bp_registry* registry, const char* backend) {
  const bp_plugin* plugin = NULL;
  if (failed(bp_registry_load(registry, backend, 0, NULL, &plugin), backend)) return 1;
  printf("%s %s, ABI %u.%u, %llu kernels: %s\n", plugin->name, plugin->version, plugin->abi_major,
         plugin->abi_minor, (unsigned long long)plugin->kernel_count, plugin->path);

  const bp_target* target = bp_registry_target(registry, 0);
  printf("%s: %s\n", target->name, target->properties->name);

  bp_block* blocks[3] = {NULL, NULL, NULL};
  int result = 0;
  for (int i = 0; i < 3 && result == 0; ++i) {
    result =
        failed(bp_block_allocate(target, NULL, kCount * sizeof(float), &blocks[i]), "allocate");
  }
  if (result == 0) result = add_and_print(target, blocks);
  /* Whatever runs elsewhere is counted, and the last line says what ran where. */
  bp_dispatch_statistics served = {.struct_size = sizeof(served),
                                   .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  if (result == 0) result = failed(bp_target_statistics(target, 0, &served), "statistics");
  if (result == 0) {
    printf("%s: %llu native, %llu decomposed, %llu on the host\n", target->name,
           (unsigned long long)served.native_count, (unsigned long long)served.decomposed_count,
           (unsigned long long)served.host_fallback_count);
  }
  for (int i = 0; i < 3; ++i) bp_block_free(blocks[i]);
  return result;
}

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    const int is_help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(is_help ? stdout : stderr, "usage: %s [BACKEND]\n", argv[0]);
    return is_help ? 0 : 2;
  }
  bp_registry* registry = NULL;
  if (failed(bp_registry_create(NULL, &registry), "registry")) return 1;
  const int result = run(registry, argc == 2 ? argv[1] : "cpu");
  if (failed(bp_registry_destroy(registry), "destroy")) return 1;
  return result;
}
