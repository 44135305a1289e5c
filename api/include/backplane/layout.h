/* backplane/layout.h - tensors whose elements do not lie by strides: tiled, block-quantised,
 * packed.
 *
 * An optional table. A kernel may want an argument in a form of its own, such as tiles of 16 by 16.
 * The host asks which, converts once, and passes tensors whose `layout` is not NULL: their shape is
 * that of the elements as the op sees them, their strides are ignored, and they begin at
 * byte_offset and fill physical_size_bytes.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   Never waits for the device. convert() is submitted to `stream`.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  A layout is immutable and reference-counted: it is made with one reference, and the
 *              last release() ends it.
 */
#ifndef BACKPLANE_LAYOUT_H_
#define BACKPLANE_LAYOUT_H_

#include "backplane/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A reader takes a kind that it does not know for BP_LAYOUT_KIND_VENDOR. */
typedef uint32_t bp_layout_kind;
enum {
  BP_LAYOUT_KIND_TILED = 1,     /* The elements in another order, perhaps padded. */
  BP_LAYOUT_KIND_QUANTIZED = 2, /* Blocks that share scales. */
  BP_LAYOUT_KIND_VENDOR = 3     /* Anything else. */
};

/* How the elements of a tensor of one shape and dtype lie. An offer of the backend. */
typedef struct bp_layout {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT. */
  const void* next;
  const char* name;             /* For people: "tiles of 16x16". */
  uint64_t physical_size_bytes; /* The size of a tensor, padding included. */
  uint64_t alignment_bytes;     /* byte_offset is a multiple of it; a power of two. */
  /* The blob describes the layout. [LAYOUT-1] from_blob() makes an equal layout from the blob of a
   * layout, in another process too. */
  const void* blob;
  uint64_t blob_size_bytes;
  bp_layout_kind kind;
  bp_dtype dtype;
} bp_layout;

/* The functions of one backend. An offer. */
typedef struct bp_layout_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT_OPS. */
  const void* next;
  void* self;

  /* Gives the layout in which `kernel` is fastest with tensor argument `argument`, counted from 0
   * in the order of the frame. *out_layout becomes NULL where strides serve, and else a reference
   * for the caller to release. Tensors need no buffer. [LAYOUT-2] A launch with an argument in the
   * layout that preferred() gave has the result of a launch with that argument by strides. */
  bp_status (*preferred)(void* self, bp_device* device, const bp_kernel* kernel, uint32_t argument,
                         const void* args, const bp_layout** out_layout);

  /* Makes a layout from a blob. A blob of another version or backend is BP_INCOMPATIBLE. */
  bp_status (*from_blob)(void* self, bp_device* device, const void* blob, uint64_t blob_size_bytes,
                         const bp_layout** out_layout);

  /* Sets *out_equal to 1 if tensors of the two layouts are interchangeable byte by byte, else 0.
   * A NULL layout is the one by strides. */
  bp_status (*equal)(void* self, const bp_layout* a, const bp_layout* b, uint32_t* out_equal);

  bp_status (*retain)(void* self, const bp_layout* layout);

  /* [LAYOUT-3] For release() a NULL layout is a no-op, and work that was submitted goes on. */
  bp_status (*release)(void* self, const bp_layout* layout);

  /* Copies the elements of `src` to `dst`, of equal shape and dtype, from one layout to the other;
   * either may be by strides. [LAYOUT-4] A conversion to another layout and back gives the same
   * elements. */
  bp_status (*convert)(void* self, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src);
} bp_layout_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_LAYOUT_H_ */
