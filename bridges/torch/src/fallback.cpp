#include "fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "devices.h"
#include "graph.h"
#include "mapped.h"
#include "random.h"
#include "streams.h"

namespace bpt {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, uint64_t>> counts;
  std::set<std::string> warned;
  std::atomic<FallbackMode> mode{FallbackMode::kWarn};
};

State& state() {
  static auto* the_state = new State;
  return *the_state;
}

thread_local std::string the_outer_reason;

constexpr size_t kLongestReason = 400;

// One line of at most so many bytes: an explanation of the library has a line for each kernel.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool is_space = c == '\n' || c == ' ';
    if (is_space && !line.empty() && line.back() == ' ') continue;
    if (c == '\n' && !line.empty()) line += ';';
    line += is_space ? ' ' : c;
  }
  if (line.size() > kLongestReason) line.replace(kLongestReason - 3, std::string::npos, "...");
  return line;
}

// The CPU takes no generator of a device: one of its own continues from the device's state.
void replace_generators(torch::jit::Stack* stack, size_t argument_count) {
  for (auto& value : torch::jit::last(*stack, argument_count)) {
    if (!value.isGenerator()) continue;
    const at::Generator theirs = value.toGenerator();
    if (!theirs.defined() || theirs.device().type() != kBp) continue;
    const auto [seed, offset] = next_random(theirs, theirs.device());
    const_cast<c10::IValue&>(value) =
        at::detail::createCPUGenerator(seed ^ (offset * 0x9E3779B97F4A7C15ULL));
  }
}

// A view of memory of the device cannot be made of a copy on the CPU.
bool is_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Serves every operator that the table has no row for.
void no_row(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fall_back(op, stack, "no operator of the library does this");
}

}  // namespace

void set_fallback_mode(FallbackMode mode) { state().mode = mode; }

void set_outer_reason(std::string reason) { the_outer_reason = std::move(reason); }

void count_fallback(const std::string& name, const std::string& whole_reason) {
  State& s = state();
  const std::string reason = one_line(whole_reason);
  const FallbackMode mode = s.mode;
  TORCH_CHECK_NOT_IMPLEMENTED(!is_captured(current_stream(current_device())),
                              "torch_backplane: ", name,
                              " cannot be captured, since PyTorch's CPU computes it: ", reason);
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode != FallbackMode::kError, "torch_backplane: ", name,
      " is not computed on the device: ", reason,
      ". torch_backplane.set_fallback(\"warn\") lets PyTorch's CPU compute it.");
  bool is_new = false;
  {
    const std::lock_guard lock(s.mutex);
    ++s.counts[name][reason];
    if (mode == FallbackMode::kWarn) is_new = s.warned.insert(name).second;
  }
  if (is_new) {
    TORCH_WARN(
        "torch_backplane: PyTorch's CPU computes ", name, ": ", reason,
        ". This is said once for each operator; torch_backplane.fallbacks() has all counts.");
  }
}

std::map<std::string, std::map<std::string, uint64_t>> fallback_counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

void reset_fallbacks() {
  const std::lock_guard lock(state().mutex);
  state().counts.clear();
}

std::string name_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
  require_open();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_view(op.schema()), "torch_backplane: ", name_of(op),
      " gives a view of its tensor, and bp has no such view. Copy the tensor to the CPU for it.");
  const std::string outer = std::exchange(the_outer_reason, "");
  count_fallback(name_of(op), outer.empty() ? reason : outer + "; " + reason);
  replace_generators(stack, op.schema().arguments().size());
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_row>());
}

}  // namespace bpt
