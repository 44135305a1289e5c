/* backplane/addresses.h - an address for the memory of every device.
 *
 * Hosts that keep memory as a pointer and nothing beside it (PyTorch, ggml, ONNX Runtime) need an
 * address for each allocation, also on devices whose buffers are handles without addresses. This
 * header gives blocks of the caching allocator an address, and finds a block by its address:
 *
 *   bp_block_address(block, &address);             what the host keeps, and computes with
 *   bp_target_find_block(target, address + 64, &block, &byte_offset);
 *   range = block->ref, from range.byte_offset + byte_offset on
 *
 * The rules of host.h hold for every function. All are safe from any thread, and none waits.
 */
#ifndef BACKPLANE_ADDRESSES_H_
#define BACKPLANE_ADDRESSES_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the address of a block's first byte, the same in each call until the block is freed. It is
 * the device's own address where bp_allocator_ops.address gives one. Else it is synthetic, in a
 * range of the process that is as large as the block's segment, reserved and inaccessible: no other
 * memory of the process has it, arithmetic within the block is sound, and a read there faults. A
 * block of 0 bytes has address 0. Returns BP_OUT_OF_MEMORY if no range can be reserved, and
 * BP_DEVICE_LOST after the unload of the block's plugin. */
BP_API bp_status bp_block_address(bp_block* block, uint64_t* out_address);

/* Finds the block in which `address` lies, and how far that is from its beginning. Only blocks that
 * were asked for their address, and are not freed, are found: every other address is BP_NOT_FOUND.
 * The block still belongs to its owner. */
BP_API bp_status bp_target_find_block(const bp_target* target, uint64_t address,
                                      bp_block** out_block, uint64_t* out_byte_offset);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_ADDRESSES_H_ */
