// Where PyTorch's CPU computes what a device does not: counted by operator and reason.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <string>

namespace bpt {

enum class FallbackMode { kCount, kWarn, kError };
void set_fallback_mode(FallbackMode mode);

// Counts a call that the host computes; warns or throws as the mode says.
void count_fallback(const std::string& name, const std::string& reason);

// The counts since the last reset, by operator and then by reason.
std::map<std::string, std::map<std::string, uint64_t>> fallback_counts();
void reset_fallbacks();

std::string name_of(const c10::OperatorHandle& op);

// Counts the call, and computes it on the CPU. The stack has the arguments, then the results.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason);

}  // namespace bpt
