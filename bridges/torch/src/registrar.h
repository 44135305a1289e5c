// Registers operators with PyTorch's dispatcher for bp, with the forms that write in place and
// out=.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <string>

#include "devices.h"
#include "fallback.h"

namespace bpt {

// "add.Tensor" as the operator aten::add.Tensor. Throws if PyTorch has none.
c10::OperatorHandle aten_op(const std::string& name);

// The operators that do what `op` does and write the result: in place, or into out=.
std::vector<c10::OperatorHandle> writing_forms_of(const c10::OperatorHandle& op);

// Registers one kernel for bp.
void register_kernel(const c10::OperatorHandle& op, c10::KernelFunction kernel,
                     std::optional<c10::impl::CppSignature> signature = std::nullopt);

// Computes a call on the CPU, for a reason.
struct OnCpu final : c10::OperatorKernel {
  explicit OnCpu(std::string the_reason) : reason(std::move(the_reason)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    fall_back(op, stack, reason);
  }
  std::string reason;
};

// A function in C++ that may throw Unsupported: the CPU then computes the call, and it is counted.
template <typename Signature>
struct Composed;
template <typename Result, typename... Args>
struct Composed<Result(Args...)> final : c10::OperatorKernel {
  using Function = Result (*)(Args...);
  Composed(c10::OperatorHandle the_op, Function the_function)
      : op(std::move(the_op)), function(the_function) {}

  Result operator()(Args... args) {
    std::string reason;
    try {
      return function(args...);
    } catch (const Unsupported& unsupported) {
      reason = unsupported.reason;
    }
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(
        c10::BoxedKernel::makeFromFunctor(std::make_unique<OnCpu>(std::move(reason))), op,
        c10::DispatchKeySet(), std::forward<Args>(args)...);
  }

  c10::OperatorHandle op;
  Function function;
};

// Registers a kernel of a composed operator and its writing forms; or keeps it for the calls that
// no row serves, if the table has rows of the operator.
void register_composed(const c10::OperatorHandle& op, c10::KernelFunction kernel,
                       const c10::impl::CppSignature& signature);

// Registers a composed operator under the name of its functional form.
template <typename Result, typename... Args>
void compose(const char* name, Result (*function)(Args...)) {
  using Kernel = Composed<Result(Args...)>;
  const c10::OperatorHandle op = aten_op(name);
  register_composed(op,
                    c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(
                        std::make_unique<Kernel>(op, function)),
                    c10::impl::CppSignature::make<Result(Args...)>());
}

}  // namespace bpt
