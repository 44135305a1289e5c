/* backplane/addresses.h - an address for the memory of every device.
 *
 * Hosts that keep memory as a pointer and nothing beside it (PyTorch, ggml, ONNX Runtime) need one
 * for each allocation, also on devices whose buffers are handles without addresses. Here blocks of
 * the caching allocator get one, and are found again by it:
 *
 *   bp_block_address(block, &address);             what the host keeps, and computes with
 *   bp_target_find_block(target, address + 64, &block, &byte_offset);
 *   range = block->ref, from range.byte_offset + byte_offset on
 *
 * Rules for every function are those of host.h. Safe from any thread; nothing here waits.
 */
#ifndef BACKPLANE_ADDRESSES_H_
#define BACKPLANE_ADDRESSES_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The address of a block's first byte, the same in each call until the block is freed: the
 * device's own where bp_allocator_ops.address gives one, and else a synthetic one, of a range of
 * the process that is as large as the block's segment, reserved and inaccessible. No other memory
 * of the process has it, arithmetic within the block is sound, and who reads there faults. 0 for a
 * block of 0 bytes. BP_OUT_OF_MEMORY if no range can be reserved; BP_DEVICE_LOST after the unload
 * of the block's plugin. */
BP_API bp_status bp_block_address(bp_block* block, uint64_t* out_address);

/* The block in which `address` lies, and how far from its beginning. Only blocks that were asked
 * for their address, and are not freed, are found: BP_NOT_FOUND for every other address. The block
 * stays its owner's. */
BP_API bp_status bp_target_find_block(const bp_target* target, uint64_t address,
                                      bp_block** out_block, uint64_t* out_byte_offset);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_ADDRESSES_H_ */
