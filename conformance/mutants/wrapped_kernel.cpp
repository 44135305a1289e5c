// The kernels of a mutant: they answer as the good kernels do, and launch as the mutant says.
#include "conformance/mutants/instance.hpp"

namespace bp::mutants {
namespace {

const Wrapped& wrapped(const bp_kernel* self) { return *static_cast<const Wrapped*>(self->state); }

bp_reason supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                   const void* args) {
  const bp_kernel* good = wrapped(self).good;
  return good->supports(good, device, flags, args);
}

bp_status workspace_size(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                         const void* args, uint64_t* out_required_bytes,
                         uint64_t* out_preferred_bytes) {
  const Wrapped& w = wrapped(self);
  uint64_t required = 0, preferred = 0;
  if (w.good->workspace_size != nullptr) {
    const bp_status status =
        w.good->workspace_size(w.good, device, flags, args, &required, &preferred);
    if (status != BP_OK) return status;
  }
  *out_required_bytes = required + w.mutant->extra_workspace_bytes;
  *out_preferred_bytes = preferred + w.mutant->extra_workspace_bytes;
  return BP_OK;
}

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const Wrapped& w = wrapped(self);
  return w.mutant->launch({w, launch}, w.strength, args);
}

bp_status prepare(const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                  const void* args, bp_plan** out_plan) {
  const bp_kernel* good = wrapped(self).good;
  return good->prepare(good, device, desc, args, out_plan);
}

bp_status plan_info(const bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info) {
  const bp_kernel* good = wrapped(self).good;
  return good->plan_info(good, plan, out_info);
}

bp_status plan_pack(const bp_kernel* self, const bp_launch* launch, const void* args,
                    const bp_buffer_ref* packed) {
  const Wrapped& w = wrapped(self);
  const bp_status status = w.good->plan_pack(w.good, launch, args, packed);
  if (status != BP_OK || !w.mutant->spoils_packed) return status;
  return Call{w, launch}.scribble({packed->buffer, packed->byte_offset, packed->size_bytes / 2});
}

bp_status plan_release(const bp_kernel* self, bp_plan* plan) {
  const bp_kernel* good = wrapped(self).good;
  return good->plan_release(good, plan);
}

// A plan belongs to the frame of prepare(), but most mutants change the frames of launches. So
// plans are removed.
void replace_plans(Wrapped& w) {
  const bool keeps_plans = w.mutant->spoils_packed || w.mutant->keeps_plans;
  const bool has_plans = keeps_plans && w.kernel.prepare != nullptr;
  w.kernel.prepare = has_plans ? prepare : nullptr;
  w.kernel.plan_info = has_plans ? plan_info : nullptr;
  w.kernel.plan_pack = has_plans ? plan_pack : nullptr;
  w.kernel.plan_release = has_plans ? plan_release : nullptr;
}

bp_status launch_on_stream(const Call& call, std::string_view, const void* args) {
  Runtime& runtime = *call.wrapped.runtime;
  bp_launch launch = *call.launch;
  launch.stream = runtime.mutant.launch_stream(runtime, launch);
  return call.wrapped.good->launch(call.wrapped.good, &launch, args);
}

// The kernels of a mutant of streams.
constexpr Mutant kOnStream{.id = "", .ops = {}, .launch = launch_on_stream};

}  // namespace

const bp_kernel* wrap(Instance& instance, const bp_kernel& good) {
  Wrapped& w = instance.kernels.emplace_back();
  bp_struct_read(&good, good.struct_size, &w.kernel, sizeof(bp_kernel), nullptr);
  w.good = &good;
  w.mutant = instance.mutant != nullptr ? instance.mutant : &kOnStream;
  w.runtime = instance.runtime.get();
  w.strength = instance.strength;
  w.allocator = &instance.allocator;
  w.streams = &instance.streams;
  w.events = &instance.events;
  w.host = instance.host;
  w.sightings = instance.sightings.get();
  w.kernel.state = &w;
  if (w.mutant->numerics != nullptr) w.kernel.numerics = w.mutant->numerics;
  if (w.mutant->alignment_bytes != 0) w.kernel.min_byte_alignment_bytes = w.mutant->alignment_bytes;
  if (w.mutant->link_type != 0) {
    w.kernel.link_types = &w.mutant->link_type;
    w.kernel.link_type_count = 1;
  }
  if (w.kernel.supports != nullptr) w.kernel.supports = supports;
  w.kernel.workspace_size = workspace_size;
  w.kernel.launch = launch;
  w.kernel.struct_size = sizeof(bp_kernel);
  replace_plans(w);
  if (w.mutant->declare != nullptr) w.mutant->declare(w.kernel);
  return &w.kernel;
}

}  // namespace bp::mutants
