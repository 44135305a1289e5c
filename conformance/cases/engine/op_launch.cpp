#include "conformance/cases/engine/op_launch.hpp"

#include <algorithm>
#include <stdexcept>

#include "conformance/cases/engine/launch_watch.hpp"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_flight.hpp"
#include "conformance/cases/engine/op_workspace.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kTimeoutNs = 20'000'000'000;

bp_kernel_choice choose(Context& t, const OpCase& op_case, const Frame& frame) {
  bp_kernel_choice choice{};
  std::string reasons;
  for (const bp_kernel_sources source :
       {BP_KERNEL_NATIVE, BP_KERNEL_DECOMPOSED, BP_KERNEL_HOST_FALLBACK}) {
    const bp_status status =
        bp_kernel_find(&t.target(), 0, source, op_case.op, frame.data(), &choice);
    if (status == BP_OK) return choice;
    if (status != BP_UNSUPPORTED) t.require_ok(status, "bp_kernel_find");
    if (reasons.empty()) reasons = bp_error_text();
  }
  bp_error_clear();
  throw NoKernel{reasons};
}

// Waits for the stream and clears its failure, so that results can be read.
void wait(Context& t, bp_stream* stream, Observation& seen) {
  const bp_stream_ops& streams = *t.target().streams;
  seen.stream_status = streams.synchronize(streams.self, stream, kTimeoutNs);
  if (seen.stream_status == BP_OK) return;
  seen.status_text = bp_error_text();
  bp_error_clear();
  t.require_ok(streams.clear_failure(streams.self, stream), "clear_failure");
}

// Calls submit(bp_launch) with a workspace that has its own canaries, and waits for the work.
template <typename Submit>
bp_status submit_guarded(Context& t, const MemoryPlace& place_in, uint64_t workspace_bytes,
                         Poison poison, Observation& seen, Submit&& submit, How how = {}) {
  Workspace workspace(place_in, workspace_bytes);
  workspace.poison(poison);
  const bp_launch launch{
      .device = t.target().device, .stream = place_in.stream, .workspace = workspace.ref()};
  how.begin(t, place_in.stream);
  const bp_status status = submit(launch);
  if (status != BP_OK) return status;
  wait(t, place_in.stream, seen);
  how.end();
  workspace.look(seen);
  return BP_OK;
}

// Launches a kernel of the backend directly.
bp_status launch_native(Context& t, const bp_kernel& kernel, const Frame& frame,
                        const MemoryPlace& place_in, Poison poison, bp_launch_flags flags,
                        Observation& seen, How how = {}) {
  const std::vector<uint64_t> words = frame.fitted(kernel.args_size_bytes);
  WorkspaceBytes bytes;
  const bp_status status = ask_for_workspace(kernel, t.target().device, flags, words.data(), bytes);
  if (status != BP_OK) return status;
  const auto submit = [&](bp_launch launch) {
    launch.flags = flags;
    return launch_from(t, how.from, seen.status_text,
                       [&] { return kernel.launch(&kernel, &launch, words.data()); });
  };
  return submit_guarded(t, place_in, bytes.required, poison, seen, submit, how);
}

// Launches a kernel of the host, or one for which the host converts tensors to layouts. The host
// makes several launches of one, and a later one is refused if an earlier one has failed the stream
// by then. That is the failure of the stream, not of the launch.
bp_status launch_by_host(Context& t, const bp_kernel& kernel, const Frame& frame, bp_stream* stream,
                         bp_launch_flags flags, Observation& seen, How how = {}) {
  how.begin(t, stream);
  const bp_status status = launch_from(t, how.from, seen.status_text, [&] {
    return bp_kernel_launch(&t.target(), stream, flags, &kernel, frame.data());
  });
  if (status != BP_OK && status != BP_STREAM_FAILED) return status;
  wait(t, stream, seen);
  how.end();
  return seen.stream_status == BP_OK ? status : BP_OK;
}

Poison first_poison(const Context& t) {
  if (t.options().poison == "ff") return Poison::kOnes;
  return t.options().poison == "random" ? Poison::kNoise : Poison::kNan;
}

// Returns what the kernels that a decomposition calls may do with subnormals. Only the host knows
// which kernels these are, so any kernel of the device counts.
std::optional<bp_numerics> numerics_of_parts(const bp_target& target) {
  bp_numerics loosest{.struct_size = sizeof(bp_numerics), .struct_type = BP_STRUCT_NUMERICS};
  for (uint64_t i = 0; i < bp_target_kernel_count(&target); ++i) {
    const bp_numerics* const numerics = bp_target_kernel(&target, i)->numerics;
    if (numerics != nullptr) loosest.flush |= numerics->flush;
  }
  if (loosest.flush == 0) return std::nullopt;
  return loosest;
}

// Launches over two kinds of poison, so that an unwritten element shows, and between two patterns,
// so that a result that depends on memory outside the elements shows. The second launch comes from
// another thread, so that a result that depends on state of a thread shows.
Observation launch_twice(Context& t, Call& call, const bp_kernel_choice& choice, bp_stream* stream,
                         const Variant& variant) {
  Observation seen;
  seen.kernel = choice.kernel;
  seen.source = choice.source;
  if (choice.source == BP_KERNEL_DECOMPOSED) seen.of_parts = numerics_of_parts(t.target());
  const bool is_native = choice.source == BP_KERNEL_NATIVE;
  const bool takes_scalars = (choice.kernel->flags & BP_KERNEL_TAKES_SCALAR) != 0;
  if (is_native && (variant.has_acc_operands || !takes_scalars)) {
    call.materialize_scalars(choice.kernel->flags);
  }
  const bool is_direct = is_native && !requires_layouts(*choice.kernel);
  const Poison first = first_poison(t);
  LeakWatch watch(t);
  const auto launch = [&](Poison poison, From from) {
    const How how{from, &watch};
    seen.launch_status =
        is_direct
            ? launch_native(t, *choice.kernel, call.frame(), call.place_in(), poison, 0, seen, how)
            : launch_by_host(t, *choice.kernel, call.frame(), stream, 0, seen, how);
  };
  const Poison poisons[] = {first, first == Poison::kOnes ? Poison::kNan : Poison::kOnes};
  for (const Poison poison : poisons) {
    call.prepare(poison, poison == first ? Surroundings::kNan : Surroundings::kLow);
    t.progress(poison == first ? "launch 1" : "launch 2");
    const bool is_second = poison != first && variant.has_threads;
    launch(poison, is_second ? From::kNewThread : From::kThisThread);
    if (seen.launch_status != BP_OK) {
      if (seen.status_text.empty()) seen.status_text = bp_error_text();
      bp_error_clear();
      return seen;
    }
    t.progress("verify");
    call.finish();
    call.look(poison == first, seen);
  }
  if (is_direct && watch.is_suspect()) {
    look_for_leak(watch, *choice.kernel, [&](From from) {
      launch(first, from);
      return seen.launch_status == BP_OK && seen.stream_status == BP_OK;
    });
  }
  return seen;
}

// Returns a line for each kernel that says why it is or is not taken.
std::string explanation(Context& t, const OpCase& op_case, const Frame& frame) {
  uint64_t size = 0;
  t.require_ok(bp_kernel_explain(&t.target(), 0, op_case.op, frame.data(), 0, nullptr, &size),
               "bp_kernel_explain");
  std::string text(size, '\0');
  t.require_ok(
      bp_kernel_explain(&t.target(), 0, op_case.op, frame.data(), size, text.data(), &size),
      "bp_kernel_explain");
  return text;
}

// Returns the kernel of `sources` for a call; NULL if there is none.
const bp_kernel* find_kernel(Context& t, const OpCase& op_case, const Call& call,
                             bp_kernel_sources sources) {
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, sources, op_case.op, call.frame().data(), &choice);
  bp_error_clear();
  return status == BP_OK ? choice.kernel : nullptr;
}

// Returns the status of prepare() for a frame without memory, which has to be the same as for a
// frame with memory.
bp_status prepare(Context& t, Call& call, Call& bare, const bp_kernel& kernel,
                  const std::vector<uint32_t>& constants, bp_plan** out_plan) {
  const bp_prepare_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PREPARE_DESC,
                             .constant_args = constants.data(),
                             .constant_arg_count = constants.size()};
  bp_device* const device = t.target().device;
  const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes),
                              bare_words = bare.frame().fitted(kernel.args_size_bytes);
  const bp_status status = kernel.prepare(&kernel, device, &desc, words.data(), out_plan);
  OwnPlan with_memory(kernel, status == BP_OK ? *out_plan : nullptr);
  const bp_status without = kernel.prepare(&kernel, device, &desc, bare_words.data(), out_plan);
  t.expect_status(without, status, "prepare of tensors without a buffer");
  if (without != BP_OK && !bp_error_text()[0]) {
    t.add({"prepare was refused without an error text", "no_text", "ERROR-1"});
  }
  t.expect_eq(with_memory.release(), BP_OK, "plan_release");
  t.expect_eq(kernel.plan_release(&kernel, nullptr), BP_OK, "plan_release of NULL");
  return without;
}

void set_status(Observation& seen, bp_status status) {
  seen.launch_status = status;
  if (status == BP_OK) return;
  seen.status_text = bp_error_text();
  bp_error_clear();
}

// Packs into guarded memory, and launches with the plan over two kinds of poison.
void pack_and_launch(Context& t, Call& call, const bp_kernel& kernel, OwnPlan& plan,
                     const bp_plan_info& info, bp_stream* stream, Observation& seen) {
  const MemoryPlace place_in = memory_place(t, stream);
  const Shape shape{static_cast<int64_t>(info.packed_size_bytes)};
  GuardedTensor packed(place_in, {BP_U8, shape, place(Layout::kDense, shape)});
  packed.poison_elements(Poison::kNan);
  packed.upload();
  const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes);
  for (const Poison poison : {Poison::kNan, Poison::kOnes}) {
    call.prepare(poison, poison == Poison::kNan ? Surroundings::kNan : Surroundings::kLow);
    if (poison == Poison::kNan && info.packed_size_bytes != 0) {
      const bp_buffer_ref range = packed.ref();
      set_status(seen, submit_guarded(t, place_in, info.workspace_required_bytes, poison, seen,
                                      [&](bp_launch launch) {
                                        launch.plan = plan.get();
                                        return kernel.plan_pack(&kernel, &launch, words.data(),
                                                                &range);
                                      }));
      if (seen.launch_status != BP_OK) return;
      call.finish();
      if (!call.is_untouched()) {
        t.add({"plan_pack changed the memory of arguments", "packing", "PLAN-3"});
      }
      packed.download();
    }
    set_status(seen,
               submit_guarded(
                   t, place_in, info.workspace_required_bytes, poison, seen, [&](bp_launch launch) {
                     launch.plan = plan.get();
                     const bp_status status = kernel.launch(&kernel, &launch, words.data());
                     // In the second launch the plan ends while its work may still
                     // wait.
                     if (poison == Poison::kOnes) {
                       t.expect_eq(plan.release(), BP_OK, "plan_release before the work has ended");
                     }
                     return status;
                   }));
    if (seen.launch_status != BP_OK) return;
    call.finish();
    call.look(poison == Poison::kNan, seen);
  }
  packed.download();
  if (const auto damage = packed.damage(); damage && seen.damage.empty()) {
    seen.damage = damage_text("packed memory", *damage);
  }
}

}  // namespace

Planned observe_planned(Context& t, const OpCase& op_case, const CallData& data,
                        const std::vector<uint32_t>& constants) {
  const CaseStream stream(t);
  Call call(t, op_case, data, {}, stream.get()), bare(t, op_case, data, {}, stream.get());
  Planned planned;
  const bp_kernel* const found = find_kernel(t, op_case, call, BP_KERNEL_NATIVE);
  if (found == nullptr) return planned;
  const bp_kernel& kernel = *found;
  planned.kernel = kernel.name;
  planned.seen.kernel = &kernel;
  planned.seen.source = BP_KERNEL_NATIVE;
  planned.has_plans = makes_plans(kernel);
  if (!planned.has_plans) return planned;
  if ((kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0) {
    call.materialize_scalars(kernel.flags);
    bare.materialize_scalars(kernel.flags);
  }
  bare.strip_buffers();
  bp_plan* made = nullptr;
  const bp_status status = prepare(t, call, bare, kernel, constants, &made);
  if (status != BP_OK) {
    planned.refusal = bp_error_text();
    bp_error_clear();
    if (status != BP_UNSUPPORTED) set_status(planned.seen, status);
    return planned;
  }
  OwnPlan plan(kernel, made);
  bp_plan_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_PLAN_INFO};
  t.require_ok(kernel.plan_info(&kernel, plan.get(), &info), "plan_info");
  pack_and_launch(t, call, kernel, plan, info, stream.get(), planned.seen);
  return planned;
}

Observation observe(Context& t, const OpCase& op_case, const CallData& data,
                    const Variant& variant) {
  t.progress("setup");
  const CaseStream stream(t);
  Call call(t, op_case, data, variant, stream.get());
  if (bp_op_check(op_case.op, call.frame().data()) != BP_OK) {
    throw std::runtime_error(std::string("the case is not a legal call: ") + bp_error_text());
  }
  if (variant.has_ignorable_links) call.add_ignorable_links();
  const bp_kernel_choice choice = choose(t, op_case, call.frame());
  if (choice.source != BP_KERNEL_NATIVE) {
    t.detail(kWhyFallback, explanation(t, op_case, call.frame()));
  }
  return launch_twice(t, call, choice, stream.get(), variant);
}

std::optional<Refused> observe_refused(Context& t, const OpCase& op_case, const CallData& data) {
  const CaseStream stream(t);
  Call call(t, op_case, data, {}, stream.get());
  const std::string lines = explanation(t, op_case, call.frame());
  for (uint64_t i = 0; i < bp_target_kernel_count(&t.target()); ++i) {
    const bp_kernel& kernel = *bp_target_kernel(&t.target(), i);
    if (kernel.op != op_case.op || kernel.supports == nullptr) continue;
    if (requires_layouts(kernel)) continue;  // The frame is by strides.
    const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes);
    const bp_reason reason = kernel.supports(&kernel, t.target().device, 0, words.data());
    // If the claims hold, the host gives the kernel's own reason; else it names the claim that
    // fails.
    const std::string line =
        "/" + std::string(kernel.name) + ": " + (reason == nullptr ? "" : reason);
    if (reason == nullptr || lines.find(line) == std::string::npos) continue;
    Refused refused{kernel.name, reason, {}};
    refused.seen = launch_twice(t, call, {&kernel, BP_KERNEL_NATIVE, 0}, stream.get(), {});
    return refused;
  }
  return std::nullopt;
}

bool is_served(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
               bp_kernel_sources sources) {
  const CaseStream stream(t);
  const Call call(t, op_case, data, variant, stream.get());
  return find_kernel(t, op_case, call, sources) != nullptr;
}

Probe probe_kernel(Context& t, const OpCase& op_case, const CallData& data, bp_launch_flags flags) {
  const CaseStream stream(t);
  Call call(t, op_case, data, {}, stream.get());
  Probe probe;
  const bp_kernel* const found = find_kernel(t, op_case, call, BP_KERNEL_NATIVE);
  if (found == nullptr) return probe;
  probe.has_kernel = true;
  const bp_kernel& kernel = *found;
  if ((kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0) call.materialize_scalars(kernel.flags);
  call.prepare(Poison::kNan);
  Observation seen;
  const bool is_direct = !requires_layouts(kernel);
  probe.status = is_direct ? launch_native(t, kernel, call.frame(), memory_place(t, stream.get()),
                                           Poison::kNan, flags, seen)
                           : launch_by_host(t, kernel, call.frame(), stream.get(), flags, seen);
  probe.text = bp_error_text();
  bp_error_clear();
  call.finish();
  probe.is_untouched = call.is_untouched();
  if (kernel.supports == nullptr || !is_direct) return probe;
  const auto ask = [&] {
    const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes);
    return kernel.supports(&kernel, t.target().device, 0, words.data());
  };
  probe.with_buffers = ask();
  call.strip_buffers();
  probe.without_buffers = ask();
  return probe;
}

}  // namespace bp::conformance
