/* backplane/layout.h - tensors whose elements do not lie by strides: tiled, block-quantised,
 * packed.
 *
 * An optional table. A kernel may want an argument in a form of its own, such as tiles of 16 by 16.
 * The host asks which, converts once, and passes tensors whose `layout` is not NULL: their shape is
 * that of the elements as the op sees them, their strides are ignored, and they begin at
 * byte_offset and fill physical_size_bytes. What files hold has a layout too: the host describes
 * the blocks of a format, and passes the bytes of the file as they are.
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

/* What a layout is, in words that are no backend's own. A request of from_desc(), and an offer
 * where a layout has it. What is 0 or NULL in a request is taken from the format. */
typedef struct bp_layout_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT_DESC. */
  const void* next;
  const int64_t* shape;       /* The elements per axis, as the op sees them. */
  const int64_t* block_shape; /* The extents of a tile or of a block; like shape it has `ndim`
                                 entries. It may be NULL in a request for a QUANTIZED layout. */
  uint32_t ndim;
  bp_layout_kind kind;     /* TILED or QUANTIZED. */
  bp_dtype dtype;          /* The dtype of the elements; that of decoded ones, BP_F32, for
                              QUANTIZED. */
  bp_dtype scale_dtype;    /* The dtype of the scales of a QUANTIZED layout; 0 for TILED. */
  const char* format_name; /* A name of backplane/block_formats.def; NULL for TILED. */
} bp_layout_desc;

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
  const bp_layout_desc* desc; /* NULL for VENDOR. It has no member that is left to the format. */
} bp_layout;

/* The functions of one backend. An offer. */
typedef struct bp_layout_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_LAYOUT_OPS. */
  const void* next;
  void* self;

  /* Gives the layout in which `kernel` is fastest with tensor argument `argument`, counted from 0
   * in the order of the frame. It is asked when memory is laid out; no choice of a kernel and no
   * launch asks it. *out_layout becomes NULL where strides serve, and else a reference
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
   * elements, if neither layout is QUANTIZED.
   *
   * [LAYOUT-5] A conversion from a QUANTIZED layout gives each element the bits that the definition
   * of its format gives (api/docs/layouts.md). [LAYOUT-6] A conversion to a QUANTIZED layout moves
   * no finite element by more than the bound of its format, and copies the bytes of a tensor that
   * is in this layout. A backend need not encode each format that it decodes: such a conversion is
   * BP_UNSUPPORTED.
   *
   * [LAYOUT-10] On a capturing stream convert() becomes work of the graph, or returns
   * BP_INVALID_ARGUMENT. A backend that has a kernel with BP_LAYOUT_CLAIM_REQUIRED captures it, for
   * the host converts the tensors of captured launches too. */
  bp_status (*convert)(void* self, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src);

  /* Optional; absent, the backend has no layouts that others describe. Makes the layout of a
   * description, before a kernel exists that takes it. [LAYOUT-7] For equal descriptions of one
   * device from_desc() gives one pointer, while a reference to that layout lives. [LAYOUT-8] A
   * description that contradicts itself or its format, or whose shape does not divide into blocks,
   * is BP_INVALID_ARGUMENT. One of a layout that the backend does not have is BP_UNSUPPORTED, and
   * the text names those that it has.
   *
   * [LAYOUT-9] The blocks of a QUANTIZED layout lie in row-major order without gaps, and its
   * alignment_bytes divides the size of a block. Therefore a tensor that begins at a block of
   * another tensor, and whose blocks follow each other there, is in the layout of its own shape. */
  bp_status (*from_desc)(void* self, bp_device* device, const bp_layout_desc* desc,
                         const bp_layout** out_layout);
} bp_layout_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_LAYOUT_H_ */
