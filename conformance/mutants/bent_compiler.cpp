#include "conformance/mutants/bent_compiler.hpp"

namespace bp::mutants {

bp_status lend_kernel(Runtime& r, bp_executable* executable, const bp_kernel** out_kernel,
                      void (*bend)(bp_kernel& kernel)) {
  const bp_kernel* good = nullptr;
  const bp_status status =
      r.good.compiler.executable_kernel(r.good.compiler.self, executable, &good);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  LentKernel& lent = r.state_as<LentKernels>()[good];
  if (lent.good == nullptr) {
    lent.kernel = *good;
    lent.good = good;
    bend(lent.kernel);
  }
  *out_kernel = &lent.kernel;
  return BP_OK;
}

bp_status forget_and_release(void* self, bp_executable* executable) {
  Runtime& r = runtime_of(self);
  const bp_compiler_ops& good = r.good.compiler;
  const bp_kernel* kernel = nullptr;
  if (executable != nullptr && good.executable_kernel(good.self, executable, &kernel) == BP_OK) {
    const std::lock_guard lock(r.mutex);
    r.state_as<LentKernels>().erase(kernel);
  }
  return good.release(good.self, executable);
}

}  // namespace bp::mutants
