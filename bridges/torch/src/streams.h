// The current device and the current stream of each thread, and c10's streams as ours.
#pragma once

#include <c10/core/Stream.h>

#include "devices.h"

namespace bpt {

c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);

// The current stream of this thread on a device: NULL for the default one, as in host.h.
bp_stream* current_stream(c10::DeviceIndex index) noexcept;

// Never NULL.
bp_stream* stream_of(const c10::Stream& stream);
bp_stream* current_stream_of(const c10::Device& device);

// Waits for a stream, and throws if its work failed.
void synchronize(const bp_target* target, bp_stream* stream, const char* call);

}  // namespace bpt
