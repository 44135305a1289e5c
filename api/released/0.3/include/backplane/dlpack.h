/* backplane/dlpack.h - exchange of tensors with other libraries, through DLPack, without copying.
 *
 * DLPack is how array libraries in one process hand memory to each other. A program includes this
 * header beside dlpack.h, or without it: the structs below are those of DLPack 1 under names of
 * ours, and a pointer to one is cast to the other.
 *
 *   const bp_foreign_tensor* theirs;
 *   bp_dlpack_import(target, managed, &theirs);     `managed` is ours now
 *   ... launches with &theirs->tensor ...
 *   bp_foreign_tensor_release(theirs);              calls its deleter
 *
 * The rules of host.h hold for every function. No function waits: the side that hands a tensor over
 * ensures that the work on it has completed, or that the taker's work is ordered after it. Nothing
 * here is used after the end of the registry that `target` is of.
 */
#ifndef BACKPLANE_DLPACK_H_
#define BACKPLANE_DLPACK_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The structs of DLPack 1, frozen by its specification --------------------------------------
 */

/* A device, as in bp_device_properties::dlpack_device_type and dlpack_device_id. */
typedef struct bp_dlpack_device {
  int32_t type;
  int32_t id;
} bp_dlpack_device;

/* The type of an element: what its bits mean, how many bits it has, and how many lanes. */
typedef struct bp_dlpack_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} bp_dlpack_dtype;
enum {
  BP_DLPACK_INT = 0,
  BP_DLPACK_UINT = 1,
  BP_DLPACK_FLOAT = 2,
  BP_DLPACK_BFLOAT = 4,
  BP_DLPACK_COMPLEX = 5,
  BP_DLPACK_BOOL = 6,
  BP_DLPACK_F8E4M3FN = 10,
  BP_DLPACK_F8E4M3FNUZ = 11,
  BP_DLPACK_F8E5M2 = 12,
  BP_DLPACK_F8E5M2FNUZ = 13,
  BP_DLPACK_F8E8M0FNU = 14,
  BP_DLPACK_F4E2M1 = 17
};

/* Element (i, j, ...) lies at data + byte_offset + (i * strides[0] + ...) * its size. */
typedef struct bp_dlpack_tensor {
  void* data;
  bp_dlpack_device device;
  int32_t ndim;
  bp_dlpack_dtype dtype;
  int64_t* shape;
  int64_t* strides; /* NULL: row-major without gaps. */
  uint64_t byte_offset;
} bp_dlpack_tensor;

/* A tensor and the deleter that ends it. DLPack's name is DLManagedTensorVersioned. */
typedef struct bp_dlpack_managed {
  uint32_t version_major; /* 1. */
  uint32_t version_minor;
  void* manager_context;
  void (*deleter)(struct bp_dlpack_managed* self); /* NULL: there is nothing to end. */
  uint64_t flags;
  bp_dlpack_tensor tensor;
} bp_dlpack_managed;
enum {
  BP_DLPACK_READ_ONLY = 1 << 0,
  BP_DLPACK_IS_COPIED = 1 << 1,       /* The exporter made a copy for this. */
  BP_DLPACK_PADDED_SUB_BYTES = 1 << 2 /* For dtypes below 8 bits, which are refused. */
};

/* The same in DLPack before 1.0, whose name is DLManagedTensor. */
typedef struct bp_dlpack_unversioned {
  bp_dlpack_tensor tensor;
  void* manager_context;
  void (*deleter)(struct bp_dlpack_unversioned* self);
} bp_dlpack_unversioned;

/* ---- From others ----------------------------------------------------------------------------- */

/* A tensor whose memory somebody else owns. It is lent until its release. */
typedef struct bp_foreign_tensor {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_FOREIGN_TENSOR. */
  const void* next;
  bp_tensor tensor;
  uint64_t flags; /* BP_DLPACK_* bits; nobody writes to a tensor with BP_DLPACK_READ_ONLY. */
} bp_foreign_tensor;
enum { BP_STRUCT_FOREIGN_TENSOR = 0x00100101 };

/* Finds the device that DLPack calls by this type and id, among those of all loaded plugins. If
 * there is none, it is BP_NOT_FOUND. */
BP_API bp_status bp_dlpack_find_target(const bp_registry* registry, bp_dlpack_device device,
                                       const bp_target** out_target);

/* Makes a tensor of `managed`, and takes `managed` over: bp_foreign_tensor_release() calls its
 * deleter. On failure `managed` stays the caller's. The tensor gets the backend's own buffer if the
 * memory lies in one, else a buffer that wraps the memory. A tensor of another device is
 * BP_INVALID_ARGUMENT, and one of another major version is BP_INCOMPATIBLE. Elements of no dtype of
 * 8 bits or more, and a device that takes no addresses, are BP_UNSUPPORTED. */
BP_API bp_status bp_dlpack_import(const bp_target* target, bp_dlpack_managed* managed,
                                  const bp_foreign_tensor** out_tensor);
BP_API bp_status bp_dlpack_import_unversioned(const bp_target* target,
                                              bp_dlpack_unversioned* managed,
                                              const bp_foreign_tensor** out_tensor);

/* Ends `tensor`, on which no work runs any more. NULL is a no-op. */
BP_API bp_status bp_foreign_tensor_release(const bp_foreign_tensor* tensor);

/* ---- For others ------------------------------------------------------------------------------ */

/* What to hand over. `release` is called once, with user_data, when the taker ends the tensor, on
 * any thread; the memory of `tensor` stays until then. Shape and strides are copied. */
typedef struct bp_dlpack_export_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DLPACK_EXPORT_DESC. */
  const void* next;
  const bp_tensor* tensor;
  uint64_t flags;                   /* BP_DLPACK_READ_ONLY and BP_DLPACK_IS_COPIED. */
  void (*release)(void* user_data); /* May be NULL. */
  void* user_data;
} bp_dlpack_export_desc;
enum { BP_STRUCT_DLPACK_EXPORT_DESC = 0x00100102 };

/* Makes the struct that DLPack hands over. The taker calls its deleter, on any thread and in any
 * order, also after the registry has ended. Buffers without an address, a device that DLPack has no
 * name for, and dtypes below 8 bits are BP_UNSUPPORTED. The unversioned form has no flags: a flag
 * that is given there is BP_INVALID_ARGUMENT. In both forms a tensor is BP_INVALID_ARGUMENT if it
 * has a negative extent, if it has elements and no buffer, or if it does not lie in its buffer: the
 * allocator is asked by a copy of 0 bytes behind the last element, on the default stream. */
BP_API bp_status bp_dlpack_export(const bp_target* target, const bp_dlpack_export_desc* desc,
                                  bp_dlpack_managed** out_managed);
BP_API bp_status bp_dlpack_export_unversioned(const bp_target* target,
                                              const bp_dlpack_export_desc* desc,
                                              bp_dlpack_unversioned** out_managed);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_DLPACK_H_ */
