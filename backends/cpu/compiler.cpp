// The compiler of the CPU backend: programs run as its kernels (backends/shell/compiler.hpp).
#include "backplane/shell/compiler.hpp"

#include "backends/cpu/backend.hpp"
#include "backends/cpu/device.hpp"

namespace bp::cpu {

void make_compiler(Instance& i) {
  CompilerBackend backend{
      .host = i.host,
      .identity = "backplane.cpu 0.1.0, programs 1",
      .memory = i.allocator,
      .streams = i.streams,
      .events = i.events,
      .kernels = {},
      .captures = i.captures.get(),
      .self = &i,
      .is_device = [](void* self, bp_device* d) { return device(instance(self), d) != nullptr; }};
  for (const bp_kernel& kernel : i.kernels) backend.kernels.push_back(&kernel);
  i.compiler = std::make_unique<Compiler>(std::move(backend));
  i.compilation = i.compiler->table();
}

}  // namespace bp::cpu
