/* The kernels of the two ops. They name their op, since only the host knows its number. */
#include <math.h>

#include "chip.h"

/* Without elements a tensor needs no buffer. */
static unsigned char* data(const bp_tensor* t) {
  if (t->buffer == NULL) return NULL;
  return ((buffer*)t->buffer)->bytes + t->byte_offset;
}

static int64_t element_count(const bp_tensor* t) {
  int64_t count = 1;
  for (uint32_t axis = 0; axis < t->ndim; ++axis) count *= t->shape[axis];
  return count;
}

static int known_flags(bp_launch_flags flags) {
  return flags <= (BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT);
}

static bp_reason supports(const bp_kernel* self, bp_device* handle, bp_launch_flags flags,
                          const void* args) {
  (void)self, (void)handle, (void)args;
  return known_flags(flags) ? NULL : "a launch flag is not known";
}

static int32_t clamped(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}

static bp_status launch_saturating_add(const bp_kernel* self, const bp_launch* launch,
                                       const void* args) {
  const saturating_add_args* f = args;
  const int64_t count = element_count(f->y);
  const unsigned char *a = data(f->a), *b = data(f->b);
  unsigned char* y = data(f->y);
  if (!known_flags(launch->flags)) {
    return fail(self->state, BP_UNSUPPORTED, "acme.saturating_add: a launch flag is new");
  }
  for (int64_t i = 0; i < count; ++i) {
    if (f->a->dtype == BP_U8) {
      y[i] = (unsigned char)clamped(a[i] + b[i], 0, 255);
    } else {
      const int32_t sum = ((const int8_t*)a)[i] + ((const int8_t*)b)[i];
      ((int8_t*)y)[i] = (int8_t)clamped(sum, -128, 127);
    }
  }
  return BP_OK;
}

/* The sums are doubles: rounded once, they differ less from the exact value than any order of
 * floats. */
static double dot(const float* x, const float* w, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (double)x[i] * (double)w[i];
  return sum;
}

static bp_status launch_swiglu_linear(const bp_kernel* self, const bp_launch* launch,
                                      const void* args) {
  const swiglu_linear_args* f = args;
  const int64_t n = f->gate->shape[0], k = f->gate->shape[1];
  const int64_t rows = n == 0 ? 0 : element_count(f->y) / n;
  const float* const x = (const float*)(const void*)data(f->x);
  const float* const gate = (const float*)(const void*)data(f->gate);
  const float* const up = (const float*)(const void*)data(f->up);
  float* const y = (float*)(void*)data(f->y);
  if (!known_flags(launch->flags)) {
    return fail(self->state, BP_UNSUPPORTED, "acme.swiglu_linear: a launch flag is new");
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      const double left = dot(x + row * k, gate + column * k, k);
      const double right = dot(x + row * k, up + column * k, k);
      y[row * n + column] = (float)(left / (1 + exp(-left)) * right);
    }
  }
  return BP_OK;
}

void init_chip_kernels(chip* c) {
  static const bp_dtype bytes[] = {BP_U8, BP_I8}, floats[] = {BP_F32};
  c->kernels[0] = (bp_kernel){.struct_size = sizeof(bp_kernel),
                              .struct_type = BP_STRUCT_KERNEL,
                              .state = &c->npu,
                              .name = "saturating_add.bytes",
                              .op_name = "acme.saturating_add",
                              .spec_revision = 1,
                              .args_size_bytes = sizeof(saturating_add_args),
                              .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
                              .dtype_rows = bytes,
                              .dtype_row_count = 2,
                              .dtype_count = 1,
                              .layouts = BP_LAYOUT_CONTIGUOUS,
                              .supports = supports,
                              .launch = launch_saturating_add};
  c->kernels[1] = (bp_kernel){.struct_size = sizeof(bp_kernel),
                              .struct_type = BP_STRUCT_KERNEL,
                              .state = &c->npu,
                              .name = "swiglu_linear.rows",
                              .op_name = "acme.swiglu_linear",
                              .spec_revision = 1,
                              .args_size_bytes = sizeof(swiglu_linear_args),
                              .flags = BP_KERNEL_DETERMINISTIC,
                              .dtype_rows = floats,
                              .dtype_row_count = 1,
                              .dtype_count = 1,
                              .layouts = BP_LAYOUT_CONTIGUOUS,
                              .supports = supports,
                              .launch = launch_swiglu_linear};
}
