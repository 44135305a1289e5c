// Memory of the host that a device reads itself: buffers over memory of the program, such as a
// mapped model, and pinned memory. A device has them as far as its plugin says so.
#pragma once

#include "backplane/host.h"
#include "ggml-backend-impl.h"

namespace bpg {

class Device;

// True if the device works on memory of the host where it lies, as fast as on memory of its own,
// and also where it may only be read. One page is registered to find out.
bool takes_host_memory(const bp_target* target);

// True if the device has memory that the host reads as fast as its own, and that both may touch at
// the same time.
bool has_pinned_memory(const bp_target* target);

// The type of buffers of pinned memory. Its context is the Device.
ggml_backend_buffer_type_i pinned_type_functions();

// Lends `size` bytes of the host's memory to the device as a block, which end_host_block() ends.
// Returns NULL if the device does not take them; ggml's log then says why.
bp_block* lend_host_memory(const Device& device, void* memory, size_t size);

// Waits until no work of the device uses the block any more, and ends it. The memory stays.
void end_host_block(Device& device, bp_block* block);

}  // namespace bpg
