// The kernels that the host itself has for ops: decompositions, copies and fallbacks. All backends
// share them: the bp_target of the launch is a link of bp_launch::next.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "backplane/kernel.h"
#include "registry/calls/op_rows.hpp"

namespace bp::services {

using ServiceLaunch = decltype(bp_kernel::launch);
using ServiceSupports = decltype(bp_kernel::supports);

constexpr bp_kernel_flags kServiceFlags =
    BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR | BP_KERNEL_DETERMINISTIC;

// Returns a kernel of `op` that takes every tensor. `launch` finds `state` in the kernel.
bp_kernel make_service(const char* name, uint32_t op, uint32_t args_size_bytes, const void* state,
                       ServiceLaunch launch, bp_kernel_flags flags = kServiceFlags);

// Such a kernel for each op. The state is the row of the op. `supports` may be NULL: then the
// kernels take every call that is offered to them. It is thread-safe.
class ServiceKernels {
 public:
  ServiceKernels(const char* name, ServiceLaunch launch, bp_kernel_flags flags = kServiceFlags,
                 ServiceSupports supports = nullptr);
  ServiceKernels(const ServiceKernels&) = delete;

  // Returns the kernel of an op. Those of ops that were described at run time are made here, and
  // live as long as this object.
  const bp_kernel* of(const core::OpRow& row);

 private:
  bp_kernel make(const core::OpRow& row) const;

  const char* name_;
  ServiceLaunch launch_;
  bp_kernel_flags flags_;
  ServiceSupports supports_;
  std::vector<bp_kernel> kernels_;  // In the order of op_rows().
  std::mutex mutex_;
  std::map<const core::OpRow*, bp_kernel> runtime_kernels_;  // mutex_ guards it.
};

}  // namespace bp::services
