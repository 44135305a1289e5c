// The mutant whose fault is drawn: `mutant=fault:TEXT`, for ops.
#include "conformance/mutants/faulty_kernel.hpp"

#include <memory>

#include "conformance/mutants/kernel_fault.hpp"

namespace bp::faults {
namespace {

using mutants::Call;
using mutants::Mutant;

bool is_capturing(const Call& call) {
  const bp_stream_ops& streams = *call.wrapped.streams;
  uint32_t is_capturing = 0;
  if (streams.is_capturing == nullptr || call.launch->stream == nullptr) return false;
  return streams.is_capturing(streams.self, call.launch->stream, &is_capturing) == BP_OK &&
         is_capturing != 0;
}

KernelState& state_of(const Call& call, std::string_view text) {
  const std::lock_guard lock(call.wrapped.mutex);
  if (call.wrapped.state == nullptr) {
    auto state = std::make_shared<KernelState>();
    state->fault = *fault_from_text(text);
    state->op = find_op(call.wrapped.kernel.op);
    call.wrapped.state = std::move(state);
  }
  return *static_cast<KernelState*>(call.wrapped.state.get());
}

// The results of a launch that is recorded cannot be changed through the host, so such a launch is
// a good one.
bp_status launch_with_fault(const Call& call, std::string_view text, const void* args) {
  KernelState& state = state_of(call, text);
  const FaultyLaunch launch{call, state, args, tensors_of(*state.op, args)};
  if (is_capturing(call) || !fits(launch)) return call.run(args);
  const KindOfFault& kind = *kind_of(state.fault);
  if (kind.has_place || kind.family == "rounding") return launch_with_wrong_values(launch);
  if (kind.family == "inputs") return launch_with_wrong_frame(launch);
  return launch_with_wrong_effect(launch);
}

bool is_replaced(uint32_t op, std::string_view text) {
  const std::optional<Fault> fault = fault_from_text(text);
  const Op* known = find_op(op);
  return fault && known != nullptr && fault->subject == known->name;
}

constexpr Mutant kTable[] = {
    {.id = "fault",
     .ops = {},
     .launch = launch_with_fault,
     .replaces = is_replaced,
     .keeps_plans = true},
};

}  // namespace

std::span<const Mutant> faulty_kernels() { return kTable; }

}  // namespace bp::faults
