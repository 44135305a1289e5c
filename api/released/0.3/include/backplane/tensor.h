/* backplane/tensor.h - device memory as kernels see it: a handle and an offset, never an address.
 *
 * Everything here is frozen and borrowed: a callee reads it during the call and keeps no pointer to
 * it. The buffers behind it live until the submitted work has completed.
 */
#ifndef BACKPLANE_TENSOR_H_
#define BACKPLANE_TENSOR_H_

#include "backplane/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The highest rank of a tensor that crosses the boundary. */
#define BP_MAX_RANK 8

/* Memory of one device, made by bp_allocator_ops. */
typedef struct bp_buffer bp_buffer;

/* A backend's own description of how elements lie (backplane/layout.h). */
typedef struct bp_layout bp_layout;

/* Part of a buffer. Frozen. */
typedef struct bp_buffer_ref {
  bp_buffer* buffer;
  uint64_t byte_offset;
  uint64_t size_bytes;
} bp_buffer_ref;

/* A strided view of a buffer. Frozen. [TENSOR-5] The host ensures that the elements of a tensor lie
 * inside its buffer.
 *
 * Element (i, j, ...) lies at byte_offset + (i * strides[0] + j * strides[1] + ...) * element size.
 * [TENSOR-1] A stride may be zero or negative, and byte_offset may be any multiple of the element
 * size and of the heap's tensor_offset_alignment_bytes: a kernel must expect all of these unless
 * its claims exclude them.
 * [TENSOR-2] A tensor with an extent of 0 has no elements; a kernel then touches no memory of it.
 * For a sub-byte type the sum counts packed elements from byte_offset on, as bp_dtype draws them.
 *
 * A flag changes what the tensor means, as a must-understand link does (backplane/base.h): the host
 * offers the tensor to kernels alone that say that they understand it (bp_kernel::tensor_flags).
 */
typedef struct bp_tensor {
  bp_buffer* buffer;      /* [TENSOR-4] The buffer of a tensor is NULL only for supports() and
                             prepare(), or if the tensor is empty. */
  uint64_t byte_offset;   /* Often not 0: the caching allocator hands out parts of buffers. */
  const int64_t* shape;   /* Elements per axis; `ndim` entries, each at least 0. */
  const int64_t* strides; /* In elements, not bytes; `ndim` entries. */
  uint32_t ndim;          /* At most BP_MAX_RANK; 0: the tensor is one element. */
  bp_dtype dtype;
  const bp_layout* layout; /* NULL: the elements lie by strides, as above. */
  uint32_t flags;          /* None defined. Bits 24 to 31 belong to backends, each for itself. */
  uint32_t reserved;       /* 0. */
  const void* next;        /* NULL, or links that qualify the tensor (backplane/base.h). */
} bp_tensor;

/* A value in the call itself, where a tensor of one element would be needed otherwise. Frozen.
 * [TENSOR-6] An inline operand acts at the precision in which its op computes: its value is rounded
 * once to acc(x), where x is the tensor that it is like, and not to the dtype of x. acc(x) is f32
 * for f16 and bf16, and the dtype of x for every other dtype. Any other inline scalar is rounded
 * once to the dtype of its argument. In a float of at most 8 bits a number beyond the largest one
 * becomes the largest one, and NaN becomes 0 if the dtype has no NaN.
 *
 * [TENSOR-7] The host refuses an inline scalar with imaginary_bits that are not 0, unless its dtype
 * is BP_C128. It refuses a BP_C128 for an argument whose dtype is not complex, and no op has a
 * complex argument yet. Therefore a kernel whose claims have no complex dtype never reads
 * imaginary_bits. */
typedef struct bp_scalar {
  bp_dtype dtype;          /* BP_BOOL, BP_I64, BP_U64, BP_F64 or BP_C128. */
  uint32_t reserved;       /* 0. */
  uint64_t bits;           /* The 8 bytes of an int64_t, uint64_t or double; 0 or 1 for BP_BOOL. For
                              BP_C128 they are the double of the real part. */
  uint64_t imaginary_bits; /* The 8 bytes of the double of the imaginary part; else 0. */
} bp_scalar;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_TENSOR_H_ */
