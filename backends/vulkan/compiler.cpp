// Programs run as kernels of this backend, one after the other (backends/shell/compiler.hpp).
#include "backplane/shell/compiler.hpp"

#include <algorithm>

#include "backends/vulkan/device.hpp"

namespace bp::vulkan {
namespace {

bool is_device(void* self, bp_device* handle) {
  return std::ranges::any_of(instance(self).cards, [&](const std::unique_ptr<Device>& device) {
    return reinterpret_cast<bp_device*>(device.get()) == handle;
  });
}

}  // namespace

void make_compiler(Instance& i) {
  CompilerBackend backend{.host = i.host,
                          .identity = "backplane.vulkan 0.1.0, programs 1",
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

}  // namespace bp::vulkan
