/* backplane/blocks.h - blocks beyond bp_block_allocate(): of every heap, in pools, of foreign
 * memory.
 *
 *   bp_block_desc desc = {sizeof(desc), BP_STRUCT_BLOCK_DESC, NULL};
 *   desc.size_bytes = 4096;
 *   desc.heap_flags = BP_HEAP_HOST_VISIBLE;
 *   bp_block_allocate_with(target, stream, &desc, &block);
 *
 * The rules of host.h hold for every function. All are safe from any thread. A block of these
 * functions is freed by bp_block_free(), and every function that takes a block takes it.
 */
#ifndef BACKPLANE_BLOCKS_H_
#define BACKPLANE_BLOCKS_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The struct types of this header, from the block of host.h. */
enum {
  BP_STRUCT_BLOCK_DESC = 0x00100010,
  BP_STRUCT_POOL_DESC = 0x00100011,
  BP_STRUCT_BLOCK_WRAP_DESC = 0x00100012,
};

/* ---- Pools ---------------------------------------------------------------------------------- */

/* A part of the cache of one target whose memory no other block uses: for a graph, a model, or a
 * phase of a program whose memory is given back as a whole. */
typedef struct bp_pool bp_pool;

typedef struct bp_pool_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_POOL_DESC. */
  const void* next;
  const char* name; /* NULL, or a name for bp_memory_snapshot(). Copied. */
} bp_pool_desc;

/* Makes an empty pool. A NULL desc is all zero. The caller ends it with bp_pool_destroy(), also
 * after the unload of its plugin, but not after bp_registry_destroy(). */
BP_API bp_status bp_pool_create(const bp_target* target, const bp_pool_desc* desc,
                                bp_pool** out_pool);

/* Frees the buffers of the pool that hold no block in use, as bp_cache_empty() does for the memory
 * outside of the pools. After the unload it is BP_DEVICE_LOST. */
BP_API bp_status bp_pool_trim(bp_pool* pool);

/* Ends the pool. Its blocks stay valid until they are freed, and the free of the last one gives
 * their memory back to the backend; so does bp_cache_empty() if work still used it then. NULL is a
 * no-op. The pool ends also if the backend refuses to take a buffer back, whose failure is
 * returned; the buffer then stays until the unload. After the unload the call only frees the
 * handle. */
BP_API bp_status bp_pool_destroy(bp_pool* pool);

/* Gives what bp_cache_get_statistics() gives, of the pool alone. The caller sets struct_size. After
 * the unload it is BP_DEVICE_LOST. */
BP_API bp_status bp_pool_get_statistics(const bp_pool* pool, bp_cache_statistics* out_statistics);

/* ---- Blocks of every heap ------------------------------------------------------------------- */

/* A request. With only size_bytes given, bp_block_allocate_with() does what bp_block_allocate()
 * does. */
typedef struct bp_block_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_BLOCK_DESC. */
  const void* next;
  uint64_t size_bytes;      /* 0: a block without memory. */
  uint64_t alignment_bytes; /* Alignment of the block's address where its memory has one, and of its
                               byte_offset: a power of two up to 4096, or 0 for 512. */
  /* The block comes from the lowest heap of heap_mask (bit i is heap i; 0: every heap) that has all
   * heap_flags, and from no other one if this heap has no room. A heap that the host could not read
   * is not used. */
  uint64_t heap_mask;
  bp_heap_flags heap_flags;
  bp_memory_usage usage; /* Not BP_MEMORY_STREAM_ORDERED: the cache keeps buffers longer. */
  bp_pool* pool;         /* NULL, or a pool of the same target. */
} bp_block_desc;

/* Takes memory for use on `stream` (NULL: the default stream) as bp_block_allocate() does. Each
 * heap, usage and alignment above 512 has buffers of its own. A block with BP_MEMORY_EXPORT is
 * alone in its buffer, so that its export shows no other block; free it only when no importer uses
 * it any more, because the cache hands its buffer out again.
 *
 * Returns BP_INVALID_ARGUMENT for a heap that does not exist, an alignment that is not allowed, an
 * unknown usage, BP_MEMORY_STREAM_ORDERED, and a pool of another target; BP_NOT_FOUND if no heap
 * that may be used has the flags; BP_UNSUPPORTED for a usage that the device lacks. */
BP_API bp_status bp_block_allocate_with(const bp_target* target, bp_stream* stream,
                                        const bp_block_desc* desc, bp_block** out_block);

/* ---- Blocks of foreign memory --------------------------------------------------------------- */

/* A range of a buffer that the caller owns, or has borrowed: imported, wrapped, registered, or a
 * part of another block. */
typedef struct bp_block_wrap_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_BLOCK_WRAP_DESC. */
  const void* next;
  bp_buffer_ref ref;
  uint64_t address; /* The address of the range's first byte, or 0: bp_block_address() then asks the
                       backend, or makes one up. */
  /* NULL, or what is called once, with user_data, when the block was freed and the work that
   * bp_block_free() waits for has ended: the owner may then end the buffer. It is called on the
   * thread of the call of host.h that notices the end: bp_block_free() itself, a later allocation
   * from the target, bp_cache_empty(), a reset, or the unload. It may call every function of this
   * library but bp_registry_unload() and bp_registry_destroy(). */
  void (*release)(void* user_data);
  void* user_data;
} bp_block_wrap_desc;

/* Makes a block of foreign memory, which work of `stream` (NULL: the default stream) uses. The
 * statistics of the cache do not count it, and the cache never hands its memory out.
 * bp_block_free() needs an event for it: if none can be recorded, the block stays with the caller,
 * and the failure is returned. bp_target_find_block() finds it as it finds others; where blocks
 * overlap, it finds one of them.
 *
 * Returns BP_INVALID_ARGUMENT for a buffer of another device, and for a range that leaves its
 * buffer, as far as the backend knows the buffer. After a failure `release` is not called. */
BP_API bp_status bp_block_wrap(const bp_target* target, bp_stream* stream,
                               const bp_block_wrap_desc* desc, bp_block** out_block);

/* ---- What the cache holds ------------------------------------------------------------------- */

/* From now on keeps the latest `event_count` events of the caches of `target` for
 * bp_memory_snapshot(), and forgets earlier ones. 0, as at the beginning, keeps none. At most
 * 16,777,216, of 40 bytes each. */
BP_API bp_status bp_memory_keep_history(const bp_target* target, uint64_t event_count);

/* Writes a JSON object about the caches of `target` into `text`: `caches`, each with its heap,
 * usage, alignment, pool, statistics and `segments` with their blocks, and `history`, oldest first,
 * with times in nanoseconds. Sizes and offsets are in bytes; buffers and streams are numbers in
 * hex, in strings. A block is "used", "free", or "waiting" for work of other streams.
 * api/docs/memory.md has an example. The text ends with a zero byte and is cut at `capacity`;
 * *out_size is what the whole text needs, the zero byte included. Other threads may change the
 * caches between two calls, so give room for more. */
BP_API bp_status bp_memory_snapshot(const bp_target* target, uint64_t capacity, char* text,
                                    uint64_t* out_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_BLOCKS_H_ */
