// Gradients by reverse mode over the graph of ops that were run.
//
//   x.set_requires_grad();
//   bp::Tensor loss = bp::sum(x * x);
//   loss.backward();                       // x.grad() is 2 * x.
//   bp::Tensor g = bp::grad(loss2, {x})[0];  // Without touching x.grad().
//
// An op is recorded if recording is on for the thread and an input requires a gradient. Writes in
// place are not recorded: the *_out functions refuse tensors that require a gradient while
// recording is on. A program must not change in place what a recorded op needs for its gradient:
// backward() then throws Error and names the tensor.
//
// Order: ops run backward in the reverse of the order in which they were recorded, on the calling
// thread and its current streams. Gradients that meet at one tensor are added in that order, so the
// result is the same, bit for bit, in every run.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backplane/runtime/tensor.hpp"

namespace bp {

namespace detail {
extern constinit thread_local bool recording;
}

// Returns whether this thread records what ops need for gradients.
inline bool is_grad_enabled() { return detail::recording; }

// Turns recording on or off for this thread and scope.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : previous_(detail::recording) {
    detail::recording = enabled;
  }
  ~GradModeGuard() { detail::recording = previous_; }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

// Turns recording off in this scope, for evaluation and for updates of parameters in place.
class NoGradGuard {
 public:
  NoGradGuard() : guard_(false) {}

 private:
  GradModeGuard guard_;
};

struct GradOptions {
  bool retain_graph = false;  // Keep what was saved, so that the graph can run again.
  bool create_graph = false;  // Record the gradients' own computation; implies retain_graph.
  bool allow_unused = false;  // An input that the outputs do not depend on gets an empty gradient.
};

// Returns the gradients of `outputs` with respect to `inputs`, which may be leaves or results.
// `grad_outputs` are the gradients of the outputs. If it is empty, each output must have one
// element, and its gradient is 1.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs = {},
                         const GradOptions& options = {});
std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                         const GradOptions& options = {});

// Adds the gradients of `outputs` to grad() of the leaves that the outputs depend on.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs = {},
              const GradOptions& options = {});

// Maps the gradient of a result to the gradients of its inputs, in their order. An empty tensor
// stands for no gradient.
using GradFunction = std::function<std::vector<Tensor>(const Tensor& gradient)>;

// Records `output` as the result of an op on `inputs`, whose gradients come from `backward`. Use it
// for what no op of the runtime computes. `name` is a literal, for messages.
//
//   Tensor y;
//   { const NoGradGuard guard; y = my_exp(x); }
//   return with_gradient("my_exp", {&x, 1}, y, [y](const Tensor& g) { return std::vector{g * y};
//   });
//
// The result shares the memory of `output`, which is computed with recording off. If recording is
// off, or if no input requires a gradient, with_gradient() returns `output` itself. `backward` runs
// once in each run that reaches the result, on the thread of the run. What it throws ends the run.
// What it captured lives as long as the graph.
Tensor with_gradient(const char* name, std::span<const Tensor> inputs, const Tensor& output,
                     GradFunction backward);

// Calls `call` once, when the run of backward() or grad() that is under way on this thread ends.
// `is_complete` is false if an exception ends the run; the call must not throw then. The functions
// that a run calls, such as GradFunction and GradHook, use it. Without a run it throws Error.
void after_backward(std::function<void(bool is_complete)> call);

// Calls a function after each backward() that reached a leaf, once all gradients that this run has
// for the leaf are in its grad(). The call comes as soon as nothing that is left to run uses the
// leaf, so work on the gradient can run beside the rest of the run. It comes on the thread and the
// streams of the run. It may replace grad() of the leaf. What it throws ends the run. grad() with
// inputs of its own calls no hooks.
//
// A GradHook shares the leaf, and ends when it is destroyed. Hooks of one leaf are called in the
// order in which they were made. No run may reach the leaf while a hook is made or destroyed.
class GradHook {
 public:
  GradHook(const Tensor& leaf, std::function<void(const Tensor& leaf)> call);
  ~GradHook();
  GradHook(GradHook&& other) noexcept;
  GradHook& operator=(GradHook&& other) noexcept;

 private:
  Tensor leaf_;  // Empty after a move.
  uint64_t id_;
};

}  // namespace bp
