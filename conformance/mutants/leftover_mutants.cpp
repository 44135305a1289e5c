// Mutants that keep what the host has ended, or make what nobody gets.
#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// Ends a handle of a type, which it forgets.
template <typename Handle>
bp_status forget(void*, Handle*) {
  return BP_OK;
}

bp_status forget_buffer(void*, bp_buffer*, bp_stream*) { return BP_OK; }

bp_status import_twice(void* self, bp_device* device, const bp_external_handle* handle,
                       bp_buffer** out_buffer) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.import_buffer(good.self, device, handle, out_buffer);
  if (status != BP_OK) return status;
  return good.import_buffer(good.self, device, handle, out_buffer);
}

void bend(Runtime& r) {
  if (r.strength == "stream") {
    r.bent.streams.destroy = forget;
  } else if (r.strength == "event") {
    r.bent.events.destroy = forget;
  } else if (r.strength == "import") {
    r.bent.allocator.import_buffer = import_twice;
  } else {
    r.bent.allocator.deallocate = forget_buffer;
  }
}

void bend_semaphores(Runtime& r) { r.bent.semaphores.destroy = forget; }
void bend_groups(Runtime& r) { r.bent.groups.destroy = forget; }
void bend_compiler(Runtime& r) { r.bent.compiler.release = forget; }

constexpr RuntimeMutant kTable[] = {
    {.id = "59_semaphore", .bend = bend_semaphores, .has_semaphores = true},
    {.id = "59_group", .bend = bend_groups, .has_groups = true},
    {.id = "59_executable", .bend = bend_compiler, .has_compiler = true},
    {.id = "59", .bend = bend},
};

}  // namespace

std::span<const RuntimeMutant> leftover_mutants() { return kTable; }

}  // namespace bp::mutants
