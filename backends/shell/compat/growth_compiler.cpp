// Gives the backend of api/tests/compat/growth_backend.c the compiler that backends have. It is
// compiled with the headers of now, and with those whose operators have grown.
#include <vector>

#include "backplane/shell/compiler.hpp"
#include "growth_backend.h"

namespace {

struct Made {
  explicit Made(bp::CompilerBackend backend) : compiler(std::move(backend)) {}
  bp::Compiler compiler;
};

bp::CompilerBackend backend_of(const growth_parts& parts) {
  return {.host = parts.host,
          .identity = "growth, programs 1",
          .memory = *parts.allocator,
          .streams = *parts.streams,
          .events = *parts.events,
          .devices = *parts.devices,
          .kernels = {parts.kernels, parts.kernels + parts.kernel_count},
          .captures = nullptr,
          .self = parts.device,
          .is_device = [](void* self, bp_device* device) -> bool { return self == device; },
          .limits = {}};
}

}  // namespace

extern "C" BP_EXPORT void* growth_make_compiler(const growth_parts* parts,
                                                bp_compiler_ops* out_table) {
  auto* const made = new Made(backend_of(*parts));
  *out_table = made->compiler.table();
  return made;
}

extern "C" BP_EXPORT void growth_end_compiler(void* compiler) {
  delete static_cast<Made*>(compiler);
}
