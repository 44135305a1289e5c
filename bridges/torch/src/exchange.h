// Tensors from and to other libraries, through DLPack, without copying.
#pragma once

#include <memory>

#include "backplane/dlpack.h"
#include "devices.h"

namespace bpt {

// The struct that DLPack hands over; the taker calls its deleter. The form before DLPack 1 has no
// flags. The work on the tensor has ended.
bp_dlpack_managed* to_dlpack(const at::Tensor& tensor, uint64_t flags);
bp_dlpack_unversioned* to_dlpack_unversioned(const at::Tensor& tensor);

struct ReleaseForeign {
  void operator()(const bp_foreign_tensor* foreign) const { bp_foreign_tensor_release(foreign); }
};
using Foreign = std::unique_ptr<const bp_foreign_tensor, ReleaseForeign>;

// Takes `managed` over for the device bp:N. After an exception it is still the caller's.
Foreign take(bp_dlpack_managed* managed, c10::DeviceIndex index);
Foreign take(bp_dlpack_unversioned* managed, c10::DeviceIndex index);

// A tensor of the device bp:N in the memory of `foreign`; a copy if nobody may write to it.
at::Tensor from_foreign(Foreign foreign, c10::DeviceIndex index);

}  // namespace bpt
