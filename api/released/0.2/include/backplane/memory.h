/* backplane/memory.h - buffers: raw device memory, and copies in every direction.
 *
 * The backend allocates plainly; caching, splitting and reuse are the host's. Every range is
 * {buffer, byte_offset, size_bytes}. [MEMORY-1] A range that leaves its buffer is
 * BP_INVALID_ARGUMENT, also one of 0 bytes, or whose end overflows, and nothing is touched.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   Never waits for the device. Copies and fills are submitted to `stream`.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns a buffer until it passes it to free(). Host pointers are borrowed as
 *              their bp_borrow says.
 */
#ifndef BACKPLANE_MEMORY_H_
#define BACKPLANE_MEMORY_H_

#include "backplane/device.h"
#include "backplane/stream.h"
#include "backplane/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a pointer stays valid, by promise of the caller. */
typedef uint32_t bp_borrow;
enum {
  BP_BORROW_DURING_CALL = 1,    /* Until the call returns. */
  BP_BORROW_UNTIL_COMPLETE = 2, /* Until the submitted work has ended. */
};

/* What a buffer is for. [MEMORY-2] An unknown bit is BP_INVALID_ARGUMENT, and a use that the device
 * lacks is BP_UNSUPPORTED. */
typedef uint32_t bp_memory_usage;
enum {
  BP_MEMORY_PEER = 1u << 0, /* Other devices copy from and to it. */
  BP_MEMORY_STREAM_ORDERED =
      1u << 1, /* Lives between allocate and free in the order of `stream`: work on other streams
                  is ordered by events, and it is neither mapped nor exported. */
  BP_MEMORY_EXPORT = 1u << 2,     /* export_buffer() will be called. */
  BP_MEMORY_COLLECTIVE = 1u << 3, /* Process groups send from it and receive into it. */
};

/* A request. Zero heap flags and heap_index take the first heap. */
typedef struct bp_allocate_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ALLOCATE_DESC. */
  const void* next;
  uint64_t size_bytes;      /* [MEMORY-3] 0 gives a buffer of size 0. */
  uint64_t alignment_bytes; /* Of the address of byte 0, where it has one: a power of two up to
                               4096, or 0 for the backend's own; else BP_INVALID_ARGUMENT. */
  bp_stream* stream;        /* For BP_MEMORY_STREAM_ORDERED; else NULL. */
  uint64_t heap_index;      /* 1 for the first heap, and so on; 0 lets heap_flags decide. */
  bp_heap_flags heap_flags; /* The first heap that has all of these is used. */
  bp_memory_usage usage;
} bp_allocate_desc;

/* What lies at an address. An offer; the caller sets struct_size. */
typedef struct bp_address_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ADDRESS_INFO. */
  const void* next;
  bp_device* device;
  bp_buffer* buffer;
  uint64_t byte_offset; /* Of the address in `buffer`. */
  uint64_t size_bytes;  /* Of `buffer`. */
} bp_address_info;

/* The memory functions of one backend. An offer. */
typedef struct bp_allocator_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ALLOCATOR_OPS. */
  const void* next;
  void* self;

  /* Allocates memory of `device`, whose content is undefined. [MEMORY-4] Without room, and for more
   * than the heap's max_allocation_bytes, it is BP_OUT_OF_MEMORY, and the text says how much was
   * asked for. BP_NOT_FOUND if no heap has the wanted flags. */
  bp_status (*allocate)(void* self, bp_device* device, const bp_allocate_desc* desc,
                        bp_buffer** out_buffer);

  /* Frees `buffer`. With a NULL stream the caller says that all uses have completed; else the
   * memory is freed behind the work submitted to `stream`, which is ordered after every use.
   * [MEMORY-5] A NULL buffer is a no-op. */
  bp_status (*free)(void* self, bp_buffer* buffer, bp_stream* stream);

  /* Optional; the device address of byte 0 until free(), for kernels that take addresses. */
  bp_status (*address)(void* self, bp_buffer* buffer, uint64_t* out_address);

  /* Makes `range` visible to the host at *out_pointer until unmap(). [MEMORY-6] Work on it
   * submitted before must have completed unless the heap is host_concurrent. BP_UNSUPPORTED if the
   * heap is not host_visible. A buffer is mapped once at a time; another map() is
   * BP_INVALID_ARGUMENT. */
  bp_status (*map)(void* self, const bp_buffer_ref* range, void** out_pointer);
  bp_status (*unmap)(void* self, bp_buffer* buffer);

  /* Make the host's writes to a mapped range visible to the device, and the device's to the host:
   * flush() after the host wrote, invalidate() before it reads. No-ops where the heap is
   * host_coherent. */
  bp_status (*flush)(void* self, const bp_buffer_ref* range);
  bp_status (*invalidate)(void* self, const bp_buffer_ref* range);

  /* Copies between two ranges of one device. [MEMORY-7] The sizes are equal, else it is
   * BP_INVALID_ARGUMENT. [MEMORY-8] So are ranges of one buffer that overlap, unless they are the
   * same. The buffers may be of two heaps. A size of 0 is a no-op. */
  bp_status (*copy)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                    const bp_buffer_ref* src);

  /* Copies dst->size_bytes from host memory. [MEMORY-9] With BP_BORROW_DURING_CALL the caller may
   * overwrite `src` as soon as the call has returned: the backend stages. */
  bp_status (*copy_from_host)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                              const void* src, bp_borrow borrow);

  /* Copies src->size_bytes to host memory. [MEMORY-10] With BP_BORROW_DURING_CALL the call blocks
   * until `dst` is complete, and returns the failure of the stream, if there is one. Else `dst` is
   * complete when the work is: behind an event, a callback or synchronize(). */
  bp_status (*copy_to_host)(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                            bp_borrow borrow);

  /* Optional; copies between ranges of two devices of this backend. `stream` belongs to either. */
  bp_status (*copy_peer)(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                         const bp_buffer_ref* src);

  /* Sets *out_can to 1 if copy_peer() from `peer` to `device` needs no staging, else 0. */
  bp_status (*can_access_peer)(void* self, bp_device* device, bp_device* peer, uint32_t* out_can);

  /* Fills `dst` with copies of a pattern of 1 to 16 bytes, which is borrowed during the call.
   * [MEMORY-11] dst->size_bytes is a multiple of pattern_size_bytes, else it is
   * BP_INVALID_ARGUMENT; every offset is allowed. */
  bp_status (*fill)(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                    uint64_t pattern_size_bytes);

  /* ---- Since 0.2, all optional ---------------------------------------------------------------
   *
   * For hosts that hold addresses: [MEMORY-12] a buffer for memory of `device` that someone else
   * owns, at an address that address() or the device's own library gave. Costs no call of the
   * driver. [MEMORY-13] free() then ends the handle alone. The memory outlives the handle. */
  bp_status (*wrap_address)(void* self, bp_device* device, uint64_t address, uint64_t size_bytes,
                            bp_buffer** out_buffer);

  /* Finds the buffer that an address lies in. [MEMORY-14] BP_NOT_FOUND for one that lies in none of
   * this backend; wrapped ranges are not searched. */
  bp_status (*address_info)(void* self, uint64_t address, bp_address_info* out_info);

  /* Lets `device` work directly on host memory, which the caller keeps until unregister_host(), and
   * lends it as a buffer of a host_visible heap. [MEMORY-15] What the device writes is in `memory`
   * once the work has completed. unregister_host() ends the buffer and asks that all uses have
   * completed; [MEMORY-16] the memory is left as it is. */
  bp_status (*register_host)(void* self, bp_device* device, void* memory, uint64_t size_bytes,
                             bp_buffer** out_buffer);
  bp_status (*unregister_host)(void* self, bp_buffer* buffer);

  /* Gives the memory of a buffer that was allocated with BP_MEMORY_EXPORT to other processes, and
   * takes such memory. [MEMORY-17] Both buffers show the same bytes. [MEMORY-18] A buffer without
   * that usage, and a handle that no buffer came from, are BP_INVALID_ARGUMENT; a type that the
   * backend lacks is BP_UNSUPPORTED. The imported buffer is freed as any other. */
  bp_status (*export_buffer)(void* self, bp_buffer* buffer, bp_external_type type,
                             bp_external_handle* out_handle);
  bp_status (*import_buffer)(void* self, bp_device* device, const bp_external_handle* handle,
                             bp_buffer** out_buffer);
} bp_allocator_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_MEMORY_H_ */
