/* A chip with two ops of its own. Device, memory and streams are those of 02_vendor_backend, whose
 * sources are built into this plugin. */
#ifndef CHIP_H_
#define CHIP_H_

#include "npu.h"

enum { kOpCount = 2 };

/* `npu` comes first: the functions of 02_vendor_backend find it at the same address. */
typedef struct chip {
  instance npu;
  bp_kernel kernels[kOpCount];
} chip;

/* The frames of the two ops. The descriptions in ops.c give the same places. */
typedef struct saturating_add_args {
  uint32_t struct_size;
  uint32_t flags;
  const bp_tensor* a;
  const bp_tensor* b;
  const bp_tensor* y;
} saturating_add_args;

typedef struct swiglu_linear_args {
  uint32_t struct_size;
  uint32_t flags;
  const bp_tensor* x;    /* (..., k) */
  const bp_tensor* gate; /* (n, k) */
  const bp_tensor* up;   /* (n, k) */
  const bp_tensor* y;    /* (..., n) */
} swiglu_linear_args;

/* The descriptions of the ops, which the host copies. */
extern const bp_op_desc chip_ops[kOpCount];

/* Fills the kernels. */
void init_chip_kernels(chip* c);

#endif /* CHIP_H_ */
