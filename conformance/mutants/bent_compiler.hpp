// What mutants of compilers share: compilations of changed requests, and kernels of executables
// that stand for the good ones.
#pragma once

#include <map>
#include <optional>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {

// Compiles with a changed copy of the desc.
template <typename Change>
bp_status compile_changed(Runtime& r, bp_device* device, const bp_compile_desc* desc,
                          bp_executable** out_executable, const Change& change) {
  const bp_compiler_ops& good = r.good.compiler;
  if (desc == nullptr || desc->struct_size < sizeof(bp_compile_desc)) {
    return good.compile(good.self, device, desc, out_executable);
  }
  bp_compile_desc changed = *desc;
  changed.struct_size = sizeof(changed);
  change(changed);
  return good.compile(good.self, device, &changed, out_executable);
}

// The kernel of an executable as the host gets it.
struct LentKernel {
  bp_kernel kernel{};  // The first member: the host has its address.
  const bp_kernel* good = nullptr;
  std::optional<uint64_t> required_bytes;  // The workspace of its first launch.
};

// The state of a mutant that lends kernels.
using LentKernels = std::map<const bp_kernel*, LentKernel>;

inline LentKernel& lent_kernel(const bp_kernel* self) {
  return *reinterpret_cast<LentKernel*>(const_cast<bp_kernel*>(self));
}

// Lends the kernel of an executable, which bend(kernel) has changed.
bp_status lend_kernel(Runtime& r, bp_executable* executable, const bp_kernel** out_kernel,
                      void (*bend)(bp_kernel& kernel));

// Releases an executable and forgets its kernel: a later one may have its address.
bp_status forget_and_release(void* self, bp_executable* executable);

}  // namespace bp::mutants
