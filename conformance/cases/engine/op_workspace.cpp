#include "conformance/cases/engine/op_workspace.hpp"

#include "conformance/cases/engine/op_call.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kAlignment = 256;  // As bp_launch::workspace promises.

GuardedSpec spec_of(const MemoryPlace& place_in, uint64_t size_bytes) {
  const Shape shape{static_cast<int64_t>(size_bytes)};
  GuardedSpec spec{BP_U8, shape, place(Layout::kDense, shape)};
  spec.alignment_bytes = kAlignment;
  const bool is_even = place_in.canary_bytes / kAlignment % 2 == 0;
  spec.small_offset_bytes = is_even ? kAlignment : 0;
  return spec;
}

}  // namespace

bp_status ask_for_workspace(const bp_kernel& kernel, bp_device* device, bp_launch_flags flags,
                            const void* frame, WorkspaceBytes& out) {
  out = {};
  if (kernel.workspace_size == nullptr) return BP_OK;
  return kernel.workspace_size(&kernel, device, flags, frame, &out.required, &out.preferred);
}

Workspace::Workspace(const MemoryPlace& place_in, uint64_t size_bytes)
    : memory_(place_in, spec_of(place_in, size_bytes)), has_bytes_(size_bytes != 0) {}

bp_buffer_ref Workspace::ref() const { return has_bytes_ ? memory_.ref() : bp_buffer_ref{}; }

void Workspace::poison(Poison poison) {
  memory_.poison_elements(poison);
  memory_.upload();
}

void Workspace::look(Observation& seen) {
  memory_.download();
  if (const auto damage = memory_.damage(); damage && seen.damage.empty()) {
    seen.damage = damage_text("workspace", *damage);
  }
}

}  // namespace bp::conformance
