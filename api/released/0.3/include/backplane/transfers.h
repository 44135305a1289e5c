/* backplane/transfers.h - bytes and tensors between host memory and devices, and between devices.
 *
 *   bp_block_upload(block, 0, weights, size, stream, unmap_file, file);
 *   bp_tensor_copy_desc desc = {sizeof(desc), BP_STRUCT_TENSOR_COPY_DESC, NULL};
 *   desc.dst_target = gpu; desc.dst = &y; desc.src_target = cpu; desc.src = &x;
 *   bp_copy_tensor(&desc);
 *
 * The rules of host.h hold for every function. All are safe from any thread.
 *
 * A release callback is called exactly once if the call returned BP_OK, and never if it failed:
 * with BP_OK, or with the failure of the stream. It runs on a thread of the backend, or on the
 * caller's before the call returns, and may do only what bp_stream_callback_fn allows; of this
 * library it may call nothing. Where a device cannot call back, the call waits for the stream.
 */
#ifndef BACKPLANE_TRANSFERS_H_
#define BACKPLANE_TRANSFERS_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The struct types of this header, from the block of host.h. */
enum { BP_STRUCT_TENSOR_COPY_DESC = 0x00100018 };

/* Submits a copy of size_bytes of host memory into the block, from its byte `byte_offset` on, to
 * `stream` (NULL: the default stream), which then uses the block as bp_block_record_stream() says.
 * Without `release` the caller may overwrite `src` as soon as the call has returned. Else `src`
 * stays as it is until `release` is called.
 *
 * Returns BP_INVALID_ARGUMENT for a range that leaves the block, for a block that was freed, and
 * for a `release` on a stream that captures; BP_DEVICE_LOST after the unload and after a reset; and
 * what the stream returns, such as BP_STREAM_FAILED. */
BP_API bp_status bp_block_upload(bp_block* block, uint64_t byte_offset, const void* src,
                                 uint64_t size_bytes, bp_stream* stream,
                                 bp_stream_callback_fn* release, void* user_data);

/* Submits a copy of size_bytes of the block to host memory, as bp_block_upload() does. `dst` is
 * complete when `release` is called, and when the work of the stream has ended: behind an event or
 * synchronize(). Until then the caller keeps it. */
BP_API bp_status bp_block_download(bp_block* block, uint64_t byte_offset, void* dst,
                                   uint64_t size_bytes, bp_stream* stream,
                                   bp_stream_callback_fn* release, void* user_data);

/* A request. The two tensors have one shape; strides and dtypes may differ. A side whose target is
 * NULL is in host memory: the `buffer` of its tensor is the address of byte 0, cast, and its stream
 * is not read. At least one side has a target. */
typedef struct bp_tensor_copy_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_TENSOR_COPY_DESC. */
  const void* next;
  const bp_target* dst_target;
  const bp_tensor* dst;
  bp_stream* dst_stream; /* NULL: the default stream. */
  const bp_target* src_target;
  const bp_tensor* src;
  bp_stream* src_stream;          /* NULL: the default stream. */
  bp_stream_callback_fn* release; /* NULL, or called when `src` may go and, for a `dst` in host
                                     memory, when `dst` is complete. */
  void* user_data;
} bp_tensor_copy_desc;

/* Submits a copy of a tensor, with the conversion of the op `copy`. It reads `src` in the order of
 * src_stream and writes `dst` in the order of dst_stream: what is submitted to either stream after
 * the call is ordered behind the copy, so that the caller needs no event. The failure of src_stream
 * becomes that of dst_stream. Buffers live until the work has ended.
 *
 * Without `release`, a `src` in host memory may be overwritten as soon as the call has returned,
 * and a `dst` in host memory is complete when the work of src_stream has ended, or when the call
 * has returned if its elements do not lie side by side.
 *
 * Bytes go from device to device by copy_peer() where the backend has it for the two, else through
 * host memory; then the call waits only if the device of `dst` has no host-signalled events, or no
 * pinned memory (pinned.h) that the host may touch while the device works on it. Dtypes change on a
 * device, by its kernel of `copy` as bp_op_launch() finds it, with memory of its cache,
 * and on the side with the smaller elements on the way.
 *
 * Returns BP_INVALID_ARGUMENT for shapes that differ, a tensor without a shape or a buffer, and two
 * sides in host memory; BP_UNSUPPORTED for tensors with a layout and for elements of less than a
 * byte, unless both are on one target; BP_DEVICE_LOST after the unload. */
BP_API bp_status bp_copy_tensor(const bp_tensor_copy_desc* desc);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_TRANSFERS_H_ */
