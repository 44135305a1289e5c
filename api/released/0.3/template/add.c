/* The first kernel: add for contiguous f32 tensors. Its claims say which calls it takes. The host
 * runs all other calls, and all other ops, until there are kernels for them. */
#include "backplane/ops.h"
#include "template.h"

static float* data(const bp_tensor* t) {
  return (float*)(void*)(((buffer*)t->buffer)->bytes + t->byte_offset);
}

static bp_status launch_add(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const bp_add_args* a = args;
  int64_t count = 1, at;
  uint32_t axis;
  if (launch->flags > (BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT)) {
    return fail(self->state, BP_UNSUPPORTED, "add: a launch flag is not known");
  }
  for (axis = 0; axis < a->a->ndim; ++axis) count *= a->a->shape[axis];
  if (count == 0) return BP_OK;
  for (at = 0; at < count; ++at) data(a->y)[at] = data(a->a)[at] + data(a->b)[at];
  return BP_OK;
}

void init_kernels(instance* i) {
  static const bp_dtype dtype_rows[] = {BP_F32};
  i->add = (bp_kernel){.struct_size = sizeof(bp_kernel),
                       .struct_type = BP_STRUCT_KERNEL,
                       .state = i,
                       .name = "add.contiguous",
                       .op = BP_OP_ADD,
                       .spec_revision = 3,
                       .args_size_bytes = BP_ADD_ARGS_SIZE_R3,
                       .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
                       .dtype_rows = dtype_rows,
                       .dtype_row_count = 1,
                       .dtype_count = 1,
                       .layouts = BP_LAYOUT_CONTIGUOUS,
                       .launch = launch_add};
}
