/* backplane/memory.h - buffers: raw device memory, and copies in every direction.
 *
 * The backend allocates plainly; caching, splitting and reuse are the host's. Every range is
 * {buffer, byte_offset, size_bytes}. [MEMORY-1] A call with a range that leaves its buffer returns
 * BP_INVALID_ARGUMENT and touches nothing, also if the range has 0 bytes or its end overflows.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   Never waits for the device. Copies and fills are submitted to `stream`.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns a buffer until it passes it to deallocate(). Host pointers are
 *              borrowed as their bp_borrow says.
 */
#ifndef BACKPLANE_MEMORY_H_
#define BACKPLANE_MEMORY_H_

#include "backplane/device.h"
#include "backplane/stream.h"
#include "backplane/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a pointer stays valid, as the caller promises. */
typedef uint32_t bp_borrow;
enum {
  BP_BORROW_DURING_CALL = 1,    /* Until the call returns. */
  BP_BORROW_UNTIL_COMPLETE = 2, /* Until the submitted work has ended. */
};

/* What a buffer is for. [MEMORY-2] allocate() returns BP_INVALID_ARGUMENT for an unknown bit of
 * `usage`, and BP_UNSUPPORTED for a use that the device lacks. */
typedef uint32_t bp_memory_usage;
enum {
  BP_MEMORY_PEER = 1u << 0, /* Other devices copy from and to it. */
  BP_MEMORY_STREAM_ORDERED =
      1u << 1, /* The buffer lives between allocate and free in the order of `stream`: work on other
                  streams is ordered by events, and the buffer is neither mapped nor exported. */
  BP_MEMORY_EXPORT = 1u << 2,     /* export_buffer() will be called. */
  BP_MEMORY_COLLECTIVE = 1u << 3, /* Process groups send from it and receive into it. */
};

/* A request. If heap_mask and heap_flags are zero, the first heap is used. */
typedef struct bp_allocate_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ALLOCATE_DESC. */
  const void* next;
  uint64_t size_bytes;      /* [MEMORY-3] Without a layout, a size_bytes of 0 gives a buffer of
                               size 0. */
  uint64_t alignment_bytes; /* Alignment of the address of byte 0, where it has one: a power of two
                               up to 4096, or 0 for the backend's own; else BP_INVALID_ARGUMENT. */
  bp_stream* stream;        /* For BP_MEMORY_STREAM_ORDERED; else NULL. */
  /* NULL, or the layout of the tensor that the buffer is for. [MEMORY-20] With a layout, allocate()
   * makes a buffer of the layout's physical_size_bytes, whose byte 0 has the layout's alignment. A
   * size_bytes that is not 0 is then BP_INVALID_ARGUMENT, a layout of another backend is
   * BP_INCOMPATIBLE, and a backend without layouts returns BP_UNSUPPORTED. */
  const bp_layout* layout;
  /* Bit i stands for heap i of the properties; 0 stands for every heap. [MEMORY-21] allocate() uses
   * the lowest heap of heap_mask that has all heap_flags, and no other heap if this one has no
   * room. A bit of a heap that does not exist is BP_INVALID_ARGUMENT. */
  uint64_t heap_mask;
  bp_heap_flags heap_flags;
  bp_memory_usage usage;
} bp_allocate_desc;

/* Where the memory of a buffer comes from, which decides what ends the buffer. A buffer without
 * these flags owns its memory until deallocate(). [MEMORY-26] An imported buffer has either
 * BP_BUFFER_ALIASES or BP_BUFFER_COPIES, and no other buffer has one of them. */
typedef uint32_t bp_buffer_flags;
enum {
  BP_BUFFER_WRAPPED = 1u << 0,    /* From wrap_address(); deallocate() ends the handle alone. */
  BP_BUFFER_REGISTERED = 1u << 1, /* From register_host(); unregister_host() ends it. */
  BP_BUFFER_RESERVED = 1u << 2,   /* From reserve() of virtual memory; release() ends it. */
  BP_BUFFER_ALIASES = 1u << 3,    /* From import_buffer(): it is the exported memory itself. */
  BP_BUFFER_COPIES = 1u << 4      /* From import_buffer(): it got the exported bytes then. */
};

/* What a buffer is. An offer; the caller sets struct_size. */
typedef struct bp_buffer_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_BUFFER_INFO. */
  const void* next;
  bp_device* device;
  uint64_t size_bytes;
  uint64_t heap_index; /* Counts from 0. UINT64_MAX: a reserved range, or memory that the backend
                          does not know. */
  uint64_t address;    /* What address() gives; 0 if it gives none. */
  bp_buffer_flags flags;
  uint32_t reserved; /* 0. */
} bp_buffer_info;

/* How one device reaches the memory of another one. An offer; the caller sets struct_size. */
typedef struct bp_peer_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PEER_INFO. */
  const void* next;
  double bytes_per_second; /* The peak of copies from the peer; 0: not known. */
  uint32_t is_direct;      /* 1 if copy_peer() from the peer needs no staging, else 0. */
  uint32_t reserved;       /* 0. */
} bp_peer_info;

/* What lies at an address. An offer; the caller sets struct_size. */
typedef struct bp_address_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ADDRESS_INFO. */
  const void* next;
  bp_device* device;
  bp_buffer* buffer;
  uint64_t byte_offset; /* The offset of the address in `buffer`. */
  uint64_t size_bytes;  /* The size of `buffer`. */
} bp_address_info;

/* The memory functions of one backend. An offer. */
typedef struct bp_allocator_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ALLOCATOR_OPS. */
  const void* next;
  void* self;

  /* Allocates memory of `device`; its content is undefined. [MEMORY-4] allocate() returns
   * BP_OUT_OF_MEMORY where there is no room, and for more than the heap's max_allocation_bytes, and
   * the text says how much was asked for. It returns BP_NOT_FOUND if no heap that may be used
   * has the wanted flags. */
  bp_status (*allocate)(void* self, bp_device* device, const bp_allocate_desc* desc,
                        bp_buffer** out_buffer);

  /* Frees `buffer`. With a NULL stream the caller promises that all uses have completed; else the
   * memory is freed after the work submitted to `stream`, which is ordered after every use.
   * [MEMORY-5] deallocate() of a NULL buffer is a no-op. */
  bp_status (*deallocate)(void* self, bp_buffer* buffer, bp_stream* stream);

  /* Optional; gives the device address of byte 0, valid until deallocate(), for kernels that take
   * addresses. */
  bp_status (*address)(void* self, bp_buffer* buffer, uint64_t* out_address);

  /* Fills *out_info. [MEMORY-19] buffer_info() gives the device, the size and the heap of every
   * buffer of this backend, and the address that address() gives. */
  bp_status (*buffer_info)(void* self, bp_buffer* buffer, bp_buffer_info* out_info);

  /* Makes `range` visible to the host at *out_pointer until unmap(). [MEMORY-6] Work submitted on a
   * range before map() must have completed, unless the heap is host_concurrent. The call returns
   * BP_UNSUPPORTED if the heap is not host_visible. [MEMORY-22] A buffer may be mapped several
   * times at once, also where the ranges overlap, and every map() has an unmap() with the pointer
   * that it gave. unmap() returns BP_INVALID_ARGUMENT for a buffer that is not mapped any more, and
   * for a pointer outside of the buffer. */
  bp_status (*map)(void* self, const bp_buffer_ref* range, void** out_pointer);
  bp_status (*unmap)(void* self, bp_buffer* buffer, void* pointer);

  /* After the host wrote to a mapped range, flush() makes its writes visible to the device; before
   * the host reads one, invalidate() makes the device's writes visible to it. Both are no-ops where
   * the heap is host_coherent. */
  bp_status (*flush)(void* self, const bp_buffer_ref* range);
  bp_status (*invalidate)(void* self, const bp_buffer_ref* range);

  /* Copies between two ranges of one device. [MEMORY-7] copy() returns BP_INVALID_ARGUMENT if the
   * sizes of the two ranges are not equal. [MEMORY-8] copy() returns BP_INVALID_ARGUMENT for two
   * ranges of one buffer that overlap, unless they are the same. The buffers may be of two heaps. A
   * size of 0 is a no-op. */
  bp_status (*copy)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                    const bp_buffer_ref* src);

  /* Copies dst->size_bytes from host memory. [MEMORY-9] With BP_BORROW_DURING_CALL the caller may
   * overwrite `src` as soon as copy_from_host() has returned: the backend stages the bytes. With
   * BP_BORROW_UNTIL_COMPLETE the backend may read `src` at any time until the copy has ended. */
  bp_status (*copy_from_host)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                              const void* src, bp_borrow borrow);

  /* Copies src->size_bytes to host memory. [MEMORY-10] With BP_BORROW_DURING_CALL copy_to_host()
   * blocks until `dst` is complete. If the stream fails before that, copy_to_host() returns
   * BP_STREAM_FAILED. With BP_BORROW_UNTIL_COMPLETE `dst` is complete when the work is: behind an
   * event, a callback or synchronize(); timeout_ns has no effect.
   *
   * With BP_BORROW_DURING_CALL the call returns BP_TIMEOUT if `dst` is not complete after
   * timeout_ns nanoseconds. [MEMORY-25] Nothing writes `dst` any more once copy_to_host() has
   * returned BP_TIMEOUT: with a timeout other than UINT64_MAX, the backend copies into memory of
   * its own first. The stream is as after a synchronize() that ran out of time, and the call may be
   * made again. A timeout of UINT64_MAX never runs out. */
  bp_status (*copy_to_host)(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                            bp_borrow borrow, uint64_t timeout_ns);

  /* Optional; copies between ranges of two devices of this backend. `stream` belongs to one of the
   * two. */
  bp_status (*copy_peer)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                         const bp_buffer_ref* src);

  /* Says how copy_peer() copies from `peer` to `device`. [MEMORY-24] If peer_info() says is_direct,
   * copy_peer() copies from `peer` to `device`. */
  bp_status (*peer_info)(void* self, bp_device* device, bp_device* peer, bp_peer_info* out_info);

  /* Fills `dst` with copies of a pattern of 1 to 16 bytes, which is borrowed during the call.
   * [MEMORY-11] fill() returns BP_INVALID_ARGUMENT if dst->size_bytes is no multiple of
   * pattern_size_bytes; every offset is allowed. */
  bp_status (*fill)(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                    uint64_t pattern_size_bytes);

  /* ---- Since 0.2, all optional ---------------------------------------------------------------
   *
   * Serves hosts that hold addresses. [MEMORY-12] wrap_address() makes a buffer for memory of
   * `device` that someone else owns, at an address that address() or the device's own library gave.
   * It makes no call to the driver. [MEMORY-13] deallocate() of a wrapped buffer ends the handle
   * alone. The memory outlives the handle. */
  bp_status (*wrap_address)(void* self, bp_device* device, uint64_t address, uint64_t size_bytes,
                            bp_buffer** out_buffer);

  /* Finds the buffer that an address lies in. [MEMORY-14] address_info() returns BP_NOT_FOUND for
   * an address that lies in no buffer of this backend; wrapped ranges are not searched. */
  bp_status (*address_info)(void* self, uint64_t address, bp_address_info* out_info);

  /* Lets `device` work directly on host memory, which the caller keeps until unregister_host(), and
   * lends it as a buffer of a host_visible heap. [MEMORY-23] register_host() returns
   * BP_INVALID_ARGUMENT for an address or a size that is no multiple of the device's
   * host_register_alignment_bytes. [MEMORY-15] What the device writes to a registered buffer is in
   * the host's `memory` once the work has completed. When all uses have completed, the caller ends
   * the buffer with unregister_host(). [MEMORY-16] unregister_host() leaves the host's memory as it
   * is. */
  bp_status (*register_host)(void* self, bp_device* device, void* memory, uint64_t size_bytes,
                             bp_buffer** out_buffer);
  bp_status (*unregister_host)(void* self, bp_buffer* buffer);

  /* Exporting gives the memory of a buffer that was allocated with BP_MEMORY_EXPORT to other
   * processes; importing takes such memory. [MEMORY-17] The exported buffer and an imported one
   * with BP_BUFFER_ALIASES show the same bytes. One with BP_BUFFER_COPIES shows the bytes of the
   * time of the import, and what is written later to either buffer is not seen in the other one.
   * buffer_info() gives these flags. [MEMORY-18] export_buffer() of a buffer without
   * BP_MEMORY_EXPORT, and import_buffer() of a handle that no buffer came from, return
   * BP_INVALID_ARGUMENT; both return BP_UNSUPPORTED for a type that the backend lacks. An imported
   * buffer is freed like any other. */
  bp_status (*export_buffer)(void* self, bp_buffer* buffer, bp_external_type type,
                             bp_external_handle* out_handle);
  bp_status (*import_buffer)(void* self, bp_device* device, const bp_external_handle* handle,
                             bp_buffer** out_buffer);
} bp_allocator_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_MEMORY_H_ */
