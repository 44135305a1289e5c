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
 *   Ownership  A layout is immutable and counted: made with one reference, and ended by the last
 *              release().
 */
#ifndef BACKPLANE_LAYOUT_H_
#define BACKPLANE_LAYOUT_H_

#include "backplane/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  uint64_t physical_size_bytes; /* Of a tensor, padding included. */
  uint64_t alignment_bytes;     /* Of its byte_offset; a power of two. */
  const void* blob;             /* What makes it this one: [LAYOUT-1] from_blob() makes an equal */
  uint64_t blob_size_bytes;     /* layout of it, in another process too. */
  bp_layout_kind kind;
  bp_dtype dtype;
} bp_layout;

/* The functions of one backend. An offer. */
typedef struct bp_layout_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT_OPS. */
  const void* next;
  void* self;

  /* The layout in which `kernel` is fastest with tensor argument `argument` of the frame, counted
   * from 0 in its order; *out_layout becomes NULL where strides serve, and else is a reference for
   * the caller to release. Tensors need no buffer. [LAYOUT-2]
   * A launch with an argument in the layout that it preferred gives what one with strides gives. */
  bp_status (*preferred)(void* self, bp_device* device, const bp_kernel* kernel, uint32_t argument,
                         const void* args, const bp_layout** out_layout);

  /* Makes a layout of a blob. BP_INCOMPATIBLE for one of another version or backend. */
  bp_status (*from_blob)(void* self, bp_device* device, const void* blob, uint64_t blob_size_bytes,
                         const bp_layout** out_layout);

  /* Sets *out_equal to 1 if tensors of the two are interchangeable byte by byte, else 0. NULL is
   * the layout by strides. */
  bp_status (*equal)(void* self, const bp_layout* a, const bp_layout* b, uint32_t* out_equal);

  bp_status (*retain)(void* self, const bp_layout* layout);

  /* [LAYOUT-3] NULL is a no-op. Work that was submitted goes on. */
  bp_status (*release)(void* self, const bp_layout* layout);

  /* Copies the elements of `src` to `dst`, of equal shape and dtype, from one layout to the other;
   * either may be by strides. [LAYOUT-4] There and back again gives the same elements. */
  bp_status (*convert)(void* self, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src);
} bp_layout_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_LAYOUT_H_ */
