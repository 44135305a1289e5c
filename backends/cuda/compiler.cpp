// The compiler: programs run as the kernels of this backend (backends/shell/compiler.hpp).
#include "backplane/shell/compiler.hpp"

#include "backends/cuda/device.hpp"

namespace bp::cuda {
namespace {

bool is_device(void* self, bp_device* handle) {
  return device_or_null(instance(self), handle) != nullptr;
}

}  // namespace

void make_compiler(Instance& i) {
  CompilerBackend backend{.host = i.host,
                          .identity = "backplane.cuda 0.1.0, programs 1",
                          .memory = i.allocator,
                          .streams = i.streams,
                          .events = i.events,
                          .kernels = {},
                          .captures = i.captures.get(),
                          .self = &i,
                          .is_device = is_device};
  for (const bp_kernel& kernel : i.kernels) backend.kernels.push_back(&kernel);
  i.compiler = std::make_unique<Compiler>(std::move(backend));
  i.compilation = i.compiler->table();
}

}  // namespace bp::cuda
