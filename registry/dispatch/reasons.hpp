// Notes why calls are served in another way than by kernels of the device alone.
#pragma once

#include "registry/dispatch/submit.hpp"

namespace bp::core {

// Returns whether calls of the op that `kernel` serves have a reason: it is not a kernel of the
// device, or it compiles programs of one op.
inline bool has_reason(const bp_kernel& kernel, bp_kernel_sources source) {
  return source != BP_KERNEL_NATIVE || CompiledOps::is_own(kernel);
}

// Returns the reason why `kernel`, for which has_reason() holds, serves a call. `refusal` is what a
// better kernel said when it refused the launch, or NULL if none did.
Reason& reason_of(Target& target, const Reading& r, const bp_kernel& kernel,
                  bp_kernel_sources source, const char* refusal = nullptr);

// Returns the reason why tensors are made from inline scalars of argument `index` of a call.
Reason& reason_of_scalar(Target& target, const OpRow& row, const bp_kernel& kernel, uint32_t index);

// Returns the reason why tensors by strides are converted for each call of `kernel`, which takes
// layouts alone.
Reason& reason_of_layouts(Target& target, const OpRow& row, const bp_kernel& kernel);

inline void count_call(Reason& reason) {
  reason.call_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace bp::core
