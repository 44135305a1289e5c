/* backplane/pinned.h - host memory that a device reads and writes itself, kept for reuse.
 *
 *   void* batch;
 *   bp_pinned_allocate(target, size, &batch);
 *   read_file(batch, size);
 *   bp_block_upload(block, 0, batch, size, stream, release, user_data);
 *   bp_pinned_free(target, batch);      reused only when the copy has ended
 *
 * The copies of transfers.h between such memory and its target need no memory in between, and
 * record their stream themselves. Without a release callback, bp_block_upload() and
 * bp_copy_tensor() put the bytes into such memory during the call, where the device can copy from
 * it beside the host. Downloads to other memory of the host, and copies between devices that cannot
 * reach each other, go through it too. bp_memory_snapshot() shows the memory as the pool "pinned".
 *
 * The rules of host.h hold for every function. All are safe from any thread.
 */
#ifndef BACKPLANE_PINNED_H_
#define BACKPLANE_PINNED_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives `size_bytes` of host memory with undefined content; NULL for 0 bytes. It comes from
 * the lowest heap that is host_visible and host_coherent, first of those that are host_cached and
 * not device_local, then of the others that are not device_local. If memory runs out, the call
 * waits for the work that freed memory waits for, and tries again. The caller ends it with
 * bp_pinned_free(). The program does not use it after a reset of the device, or after the unload,
 * which end it.
 *
 * The memory is mapped (bp_allocator_ops::map) until it is freed. If its heap is host_concurrent,
 * the copies of transfers.h are copies on the device, else copies of host memory.
 *
 * Returns BP_UNSUPPORTED if the device has no such heap. */
BP_API bp_status bp_pinned_allocate(const bp_target* target, uint64_t size_bytes,
                                    void** out_memory);

/* Says that the work submitted to `stream` so far, which is not NULL, uses the memory, so that
 * bp_pinned_free() keeps it until this work has ended. `stream` is one of the target, and may end
 * first. `memory` is what bp_pinned_allocate() gave. Returns BP_INVALID_ARGUMENT for other memory,
 * and for a stream that captures: memory that a graph uses is freed after the graph has ended. */
BP_API bp_status bp_pinned_record_stream(const bp_target* target, void* memory, bp_stream* stream);

/* Gives the memory back. NULL is a no-op. Returns BP_INVALID_ARGUMENT for memory that
 * bp_pinned_allocate() did not give, or that was freed. After the unload it does nothing. It must
 * not be called after bp_registry_destroy(), which ends the target. */
BP_API bp_status bp_pinned_free(const bp_target* target, void* memory);

/* Gives the memory that nobody holds, and whose work has ended, back to the backend. Returns the
 * first failure of the backend. */
BP_API bp_status bp_pinned_trim(const bp_target* target);

/* Gives what bp_cache_get_statistics() gives, of pinned memory alone. Freed memory whose work has
 * not ended counts as allocated. The caller sets struct_size. */
BP_API bp_status bp_pinned_get_statistics(const bp_target* target,
                                          bp_cache_statistics* out_statistics);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_PINNED_H_ */
