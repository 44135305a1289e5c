/* softmax for contiguous f32 tensors, along the last axis. It is the one op that this chip has.
 * The claims say which tensors the kernel takes, and supports() refuses what the claims cannot say.
 * Every other call, and every other op, runs through a decomposition or on the host, and is
 * counted. */
#include <math.h>

#include "backplane/ops.h"
#include "npu.h"

/* Without elements a tensor needs no buffer. */
static float* data(const bp_tensor* t) {
  if (t->buffer == NULL) return NULL;
  return (float*)(void*)(((buffer*)t->buffer)->bytes + t->byte_offset);
}

static bp_reason softmax_supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                                  const void* args) {
  const bp_softmax_args* a = args;
  (void)self, (void)device;
  if (flags > (BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT)) {
    return "a launch flag is not known";
  }
  return (uint32_t)a->axis + 1 == a->x->ndim ? NULL : "the axis is not the last one";
}

/* The sum is a double: a float would lose half of its digits over a row of a million elements. */
static void softmax_row(const float* x, float* y, int64_t count) {
  float peak = -INFINITY;
  double sum = 0;
  int has_nan = 0;
  int64_t i;
  for (i = 0; i < count; ++i) {
    if (isnan(x[i])) has_nan = 1;
    if (x[i] > peak) peak = x[i];
  }
  for (i = 0; i < count; ++i) sum += expf(x[i] - peak);
  for (i = 0; i < count; ++i) y[i] = has_nan ? NAN : (float)(expf(x[i] - peak) / sum);
}

static bp_status launch_softmax(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const bp_softmax_args* a = args;
  const float* x = data(a->x);
  float* y = data(a->y);
  int64_t rows = 1, count, row;
  int32_t axis;
  if (softmax_supports(self, launch->device, launch->flags, args) != NULL) {
    return fail(self->state, BP_UNSUPPORTED, "softmax: not along the last axis, or a flag is new");
  }
  count = a->x->shape[a->axis]; /* x has axes, else supports() would have refused it. */
  for (axis = 0; axis < a->axis; ++axis) rows *= a->x->shape[axis];
  for (row = 0; row < rows; ++row) softmax_row(x + row * count, y + row * count, count);
  return BP_OK;
}

void init_kernels(instance* i) {
  static const bp_dtype dtype_rows[] = {BP_F32};
  i->softmax = (bp_kernel){.struct_size = sizeof(bp_kernel),
                           .struct_type = BP_STRUCT_KERNEL,
                           .state = i,
                           .name = "softmax.rows",
                           .op = BP_OP_SOFTMAX,
                           .spec_revision = 3,
                           .args_size_bytes = BP_SOFTMAX_ARGS_SIZE_R3,
                           .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
                           .dtype_rows = dtype_rows,
                           .dtype_row_count = 1,
                           .dtype_count = 1,
                           .layouts = BP_LAYOUT_CONTIGUOUS,
                           .supports = softmax_supports,
                           .launch = launch_softmax};
}
