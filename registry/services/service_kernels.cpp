#include "registry/services/service_kernels.hpp"

#include "registry/calls/runtime_ops.hpp"

namespace bp::services {

bp_kernel make_service(const char* name, uint32_t op, uint32_t args_size_bytes, const void* state,
                       ServiceLaunch launch, bp_kernel_flags flags) {
  bp_kernel kernel{};
  kernel.struct_size = sizeof(bp_kernel);
  kernel.struct_type = BP_STRUCT_KERNEL;
  kernel.state = const_cast<void*>(state);  // Nobody writes to it.
  kernel.name = name;
  kernel.op = op;
  kernel.spec_revision = BP_OPS_REVISION;
  kernel.args_size_bytes = args_size_bytes;
  kernel.flags = flags;
  kernel.layouts = BP_LAYOUT_ANY;
  kernel.launch = launch;
  return kernel;
}

ServiceKernels::ServiceKernels(const char* name, ServiceLaunch launch, bp_kernel_flags flags,
                               ServiceSupports supports)
    : name_(name), launch_(launch), flags_(flags), supports_(supports) {
  kernels_.reserve(core::op_rows().size());
  for (const core::OpRow& row : core::op_rows()) kernels_.push_back(make(row));
}

bp_kernel ServiceKernels::make(const core::OpRow& row) const {
  bp_kernel kernel = make_service(name_, row.op, row.frame_size_bytes, &row, launch_, flags_);
  kernel.spec_revision = row.revision;
  kernel.supports = supports_;
  return kernel;
}

const bp_kernel* ServiceKernels::of(const core::OpRow& row) {
  if (!core::is_runtime_op(row)) return &kernels_[row.index];
  const std::lock_guard lock(mutex_);
  const auto found = runtime_kernels_.find(&row);
  if (found != runtime_kernels_.end()) return &found->second;
  return &runtime_kernels_.emplace(&row, make(row)).first->second;
}

}  // namespace bp::services
