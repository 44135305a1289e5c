// Tensors from and to other libraries, through DLPack, without copying.
#pragma once

#include "backplane/dlpack.h"
#include "devices.h"

namespace bpt {

// The struct that DLPack hands over; the taker calls its deleter.
bp_dlpack_managed* to_dlpack(const at::Tensor& tensor);

// A tensor of the device bp:N in the memory of `managed`, which it takes over.
at::Tensor from_dlpack(bp_dlpack_managed* managed, c10::DeviceIndex index);

}  // namespace bpt
