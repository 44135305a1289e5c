// Copies between host memory and devices, and between devices (transfers.h).
#pragma once

#include <cstdint>
#include <functional>

#include "backplane/transfers.h"
#include "registry/services/caching_allocator.hpp"
#include "registry/services/pinned_memory.hpp"

namespace bp::services {

// What a program gave to be called at the end of a transfer. `call` may be NULL.
struct Completion {
  bp_stream_callback_fn* call = nullptr;
  void* user_data = nullptr;
};

// Calls `completion` when the work submitted to `stream` so far has ended. Where the device cannot
// call back, waits for the stream. The callback gets the failure of the stream, so nothing fails
// here.
void call_when_done(const bp_target& target, bp_stream* stream, const Completion& completion);

// Refuses a completion if the stream captures, because the work does not run now.
bp_status check_not_capturing(const bp_target& target, bp_stream* stream);

// Where bytes are on a device. `pinned` may be NULL.
struct DevicePlace {
  const bp_target& target;
  PinnedMemory* pinned;
  bp_stream* stream;
  bp_buffer_ref range;
};

// Copies host memory to the range, or the range to host memory.
bp_status upload(const DevicePlace& dst, const void* src, const Completion& completion);
bp_status download(void* dst, const DevicePlace& src, const Completion& completion);

// Copies what fill(memory) writes during the call. It goes through pinned memory where the device
// can copy from that beside the host, and it is not too small or too large for that. Else it goes
// through the memory that the backend has for such copies.
bp_status upload_filled(const DevicePlace& dst, const std::function<void(unsigned char*)>& fill);

// Calls read(memory) with the bytes of the range, which it copies to the host in the same way, and
// waits for the stream.
bp_status download_to(const std::function<void(const unsigned char*)>& read,
                      const DevicePlace& src);

// Takes pinned memory of the target for a copy of the whole range. Returns NULL if the copy goes
// another way.
void* take_pinned(const DevicePlace& place);

// One side of a copy of a tensor. `target` and `cache` are NULL for host memory.
struct CopySide {
  const bp_target* target;
  Cache* cache;
  bp_stream* stream;
  const bp_tensor* tensor;
  PinnedMemory* pinned = nullptr;

  DevicePlace place(const bp_buffer_ref& range) const { return {*target, pinned, stream, range}; }
};

// bp_op_launch(), or what a test has in its place.
using LaunchOp = bp_status (*)(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                               uint32_t op, const void* args);

// Copies src to dst, as bp_copy_tensor() does.
bp_status copy_tensor(const CopySide& dst, const CopySide& src, const Completion& completion,
                      LaunchOp launch);

// Copies the elements of `src`, whose buffer is an address of the host, to `dst`, one behind the
// other. scatter() is the way back.
void gather(const bp_tensor& src, unsigned char* dst);
void scatter(const unsigned char* src, const bp_tensor& dst);

}  // namespace bp::services
