#include "backends/cpu/full_instance.hpp"

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backplane/shell/compiler.hpp"

namespace bp::cpu {

FullInstance::FullInstance(const bp_host* its_host) : Instance(its_host) {
  share_events(*this);
  make_layouts(*this);
  make_compiler(*this);
}

// Executables that the host left release their layouts.
FullInstance::~FullInstance() { compiler.reset(); }

}  // namespace bp::cpu
