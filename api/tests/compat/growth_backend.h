/* What growth_backend.c and the compiler that growth_compiler.cpp makes for it know of each other.
 */
#ifndef GROWTH_BACKEND_H_
#define GROWTH_BACKEND_H_

#include "backplane/backend.h"
#include "backplane/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parts of a backend with one device from which its compiler is made. The tables and kernels of
 * the backend may be longer than the compiler knows. */
typedef struct growth_parts {
  const bp_host* host;
  bp_device* device;
  const bp_device_ops* devices;
  const bp_allocator_ops* allocator;
  const bp_stream_ops* streams;
  const bp_event_ops* events;
  const bp_kernel* const* kernels;
  uint64_t kernel_count;
} growth_parts;

/* Makes the compiler, which reads `parts` until growth_end_compiler(). Writes the table as the
 * compiler knows it. Never returns NULL. */
void* growth_make_compiler(const growth_parts* parts, bp_compiler_ops* out_table);

/* NULL is a no-op. */
void growth_end_compiler(void* compiler);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* GROWTH_BACKEND_H_ */
