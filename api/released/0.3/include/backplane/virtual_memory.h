/* backplane/virtual_memory.h - addresses and memory apart: reserve a range, put memory behind it.
 *
 * This table is optional. With it a host grows a buffer without copying, and gives back the unused
 * part of a buffer. A reserved range is a bp_buffer, so that every call that takes {buffer,
 * byte_offset, size_bytes} takes its mapped parts.
 *
 *   reserve(8 GiB) -> range        create(64 MiB) -> memory
 *   map({range, 0, 64 MiB}, memory, 0); set_access({range, 0, 64 MiB}, device, read and write)
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   May call the operating system or the driver; never waits for device work.
 *   Errors     Returns a status, with the text in the thread's error slot. [VIRTUAL-1] A size or
 *              offset that is no multiple of granularity() is refused with BP_INVALID_ARGUMENT.
 *   Ownership  The caller owns what was made until it passes it to the matching release().
 */
#ifndef BACKPLANE_VIRTUAL_MEMORY_H_
#define BACKPLANE_VIRTUAL_MEMORY_H_

#include "backplane/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory without an address. */
typedef struct bp_physical_memory bp_physical_memory;

/* What a device may do with a mapped range. */
typedef uint32_t bp_access;
enum { BP_ACCESS_NONE = 0, BP_ACCESS_READ = 1, BP_ACCESS_READ_WRITE = 2 };

/* The functions of one backend. An offer. */
typedef struct bp_virtual_memory_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_VIRTUAL_MEMORY_OPS. */
  const void* next;
  void* self;

  /* Gives the unit of every size and offset of this table for memory of a heap; it is a power of
   * two. Here and in create(), heap_index counts from 0, as in the properties of the device. */
  bp_status (*granularity)(void* self, bp_device* device, uint64_t heap_index,
                           uint64_t* out_size_bytes);

  /* Reserves a range without memory. [VIRTUAL-2] reserve() takes no memory of a heap, whatever the
   * size of the range. [VIRTUAL-3] Copies and fills of a part of a range that is not mapped return
   * BP_INVALID_ARGUMENT. */
  bp_status (*reserve)(void* self, bp_device* device, uint64_t size_bytes, bp_buffer** out_range);

  /* Makes size_bytes of memory, at least 1 unit, of the heap with this index. It returns
   * BP_OUT_OF_MEMORY if there is no room. */
  bp_status (*create)(void* self, bp_device* device, uint64_t heap_index, uint64_t size_bytes,
                      bp_physical_memory** out_memory);

  /* Puts range->size_bytes of `memory`, from memory_offset on, behind `range`. [VIRTUAL-4] map()
   * returns BP_INVALID_ARGUMENT if a part of the range is mapped already. [VIRTUAL-5] Physical
   * memory may be mapped more than once, and all places show the same bytes. The access to a mapped
   * part is BP_ACCESS_NONE until set_access(). */
  bp_status (*map)(void* self, const bp_buffer_ref* range, bp_physical_memory* memory,
                   uint64_t memory_offset);

  /* Sets what the listed devices may do with a mapped range; a device_count of 0 means the device
   * that the range was reserved for. */
  bp_status (*set_access)(void* self, const bp_buffer_ref* range, uint64_t device_count,
                          bp_device* const* device_list, bp_access access);

  /* Takes the memory away from a mapped range, whose uses have all completed. [VIRTUAL-6] The bytes
   * stay in the physical memory after unmap(), and are there when it is mapped again. */
  bp_status (*unmap)(void* self, const bp_buffer_ref* range);

  /* Ends `memory`. [VIRTUAL-7] Physical memory that is still mapped at release_memory() lives until
   * unmap(). A NULL memory is a no-op. */
  bp_status (*release_memory)(void* self, bp_physical_memory* memory);

  /* Ends `range`. [VIRTUAL-8] release() returns BP_INVALID_ARGUMENT while a part of the range is
   * mapped. A NULL range is a no-op. A range is not passed to deallocate(). */
  bp_status (*release)(void* self, bp_buffer* range);
} bp_virtual_memory_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_VIRTUAL_MEMORY_H_ */
