// Mutants of compilers. The numbers are those of the kill table.
#include "conformance/mutants/mutant.hpp"
#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// ---- 50: compilations that ignore what was asked for --------------------------------------------

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

bp_status compile_without_options(void* self, bp_device* device, const bp_compile_desc* desc,
                                  bp_executable** out_executable) {
  return compile_changed(runtime_of(self), device, desc, out_executable,
                         [](bp_compile_desc& d) { d.option_count = 0; });
}

bp_status compile_to_the_end(void* self, bp_device* device, const bp_compile_desc* desc,
                             bp_executable** out_executable) {
  return compile_changed(runtime_of(self), device, desc, out_executable,
                         [](bp_compile_desc& d) { d.should_stop = nullptr; });
}

void bend_requests(Runtime& r) {
  r.bent.compiler.compile = r.strength == "stop" ? compile_to_the_end : compile_without_options;
}

constexpr RuntimeMutant kTable[] = {
    {.id = "50", .bend = bend_requests, .has_compiler = true},
};

}  // namespace

std::span<const RuntimeMutant> compiler_mutants() { return kTable; }

}  // namespace bp::mutants
