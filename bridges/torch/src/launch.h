// The submission of a filled frame to the current stream of a device.
#pragma once

#include "devices.h"
#include "op.h"

namespace bpt {

// Throws Unsupported if no kernel of the device takes the call, and PyTorch's exception if earlier
// work of the stream has failed.
void launch(const Op& op, c10::Device device, const void* frame);

}  // namespace bpt
