#include "registry/services/service_kernels.hpp"

#include "registry/calls/op_rows.hpp"

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

std::vector<bp_kernel> make_services(const char* name, ServiceLaunch launch,
                                     bp_kernel_flags flags) {
  std::vector<bp_kernel> kernels;
  kernels.reserve(core::op_rows().size());
  for (const core::OpRow& row : core::op_rows()) {
    kernels.push_back(make_service(name, row.op, row.frame_size_bytes, &row, launch, flags));
  }
  return kernels;
}

}  // namespace bp::services
