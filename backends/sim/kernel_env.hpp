// What the kernels know of this backend. It has the same names as the cpu backend's kernel_env.hpp,
// and the include path finds it first. A launch collects the memory that its frame names. Its task
// runs alone on the worker of its stream, while that memory is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/backend.hpp"
#include "backends/sim/frame.hpp"
#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/kernel.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/plan.hpp"

namespace bp::kernels {

// Returns the address of a range, or NULL.
inline std::byte* address_of(const bp_buffer_ref& range) {
  if (range.buffer == nullptr) return nullptr;
  return sim::buffer_of(range.buffer, "launch", "an argument").address() + range.byte_offset;
}

// Returns the address of the first element. The address has no meaning if the tensor has no
// elements.
template <typename T>
T* data(const bp_tensor& t) {
  return reinterpret_cast<T*>(address_of({t.buffer, t.byte_offset, 0}));
}

// What a kernel knows of its backend, also when nothing is launched.
class Env {
 public:
  explicit Env(const sim::Instance& instance) : instance_(instance) {}

  // Runs body(const Env&) for a function of `kernel`, and turns exceptions into a status.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device*, Body&& body) {
    const sim::Instance& i = sim::instance(kernel.state);
    return guarded(*i.host, [&] { return body(Env(i)); });
  }

  // A stream's work runs on one thread.
  int thread_count() const { return 1; }

  // Returns the cache in which kernels that use oneDNN keep their primitives.
  ProgramCache& programs() const { return *instance_.programs; }

 protected:
  const sim::Instance& instance_;
};

// One launch: what a kernel has besides the arguments of its op.
class Launch : public Env {
 public:
  Launch(const sim::Instance& instance, const bp_kernel& kernel, const bp_launch& launch,
         sim::Stream& stream, std::vector<sim::Use> uses)
      : Env(instance), kernel_(kernel), launch_(launch), stream_(stream) {
    // An ordered corruption changes the last memory that is written, which must be a result.
    sim::add_use(uses_, launch.workspace, stream, "workspace");
    uses_.insert(uses_.end(), uses.begin(), uses.end());
  }

  // If `only_checks` is true, the launch submits nothing and only says whether it would be
  // accepted.
  void set_only_checks(bool only_checks) { only_checks_ = only_checks; }
  bool only_checks() const { return only_checks_; }

  bp_launch_flags flags() const { return launch_.flags; }

  // Returns the scratch memory that workspace_size() asked for. Its address is a multiple of 64
  // bytes.
  template <typename T = std::byte>
  T* workspace() const {
    return reinterpret_cast<T*>(address_of(launch_.workspace));
  }
  const bp_buffer_ref& workspace_ref() const { return launch_.workspace; }

  // Returns the plan that prepare() made for this frame, or NULL.
  bp_plan* plan() const { return launch_.plan; }

  // Returns the address where the constant arguments of this launch are packed.
  std::byte* packed(const bp_buffer_ref& range) {
    sim::add_use(uses_, range, stream_, "packed");
    return address_of(range);
  }

  // Submits `task`, a callable without arguments. The task may run after launch() has returned,
  // when the frame and its tensors no longer exist, so it holds what it needs by value. A task
  // fails by throwing StatusError.
  template <typename Task>
  bp_status submit(Task task) const {
    if (only_checks_) return BP_OK;
    const WorkName name{BP_ACTIVITY_KERNEL, kernel_.name, 0, launch_.correlation_id};
    return sim::submit_work(stream_, name, uses_, std::move(task));
  }

  // Does what submit(make_task()) does: no work of this backend runs before launch() returns.
  template <typename Run, typename MakeTask>
  bp_status submit_or_run(const Run&, const MakeTask& make_task) const {
    return submit(make_task());
  }

  // Refuses the launch: returns `status`, with the text in the thread's error slot.
  bp_status refuse(bp_status status, const std::string& text) const {
    return instance_.fail(status, text);
  }

 private:
  const bp_kernel& kernel_;
  const bp_launch& launch_;
  sim::Stream& stream_;
  std::vector<sim::Use> uses_;
  bool only_checks_ = false;
};

// Runs body(Launch&) for a launch that the host made.
template <typename Body>
bp_status with_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                      const Body& body) {
  const sim::Instance& i = sim::instance(kernel->state);
  const auto make = [&] {
    sim::Stream& stream = sim::stream_of(launch->stream, "launch");
    return Launch(i, *kernel, *launch, stream, sim::uses_of_frame(kernel->op, args, stream));
  };
  return bp::with_launch(i, *kernel, launch, args, make, body);
}

// How kernels are launched, for plan.hpp of the shell.
struct Launcher : LauncherOf<sim::Instance, Env, Launch> {
  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    return with_launch(kernel, launch, args,
                       [&](Launch& context) { return kBody(*kernel, args, context); });
  }
};

// Which thread of the team that runs a parallel loop this is: there is one.
inline int thread_number() { return 0; }

// Calls body(0, count).
template <typename Body>
void parallel_for(int, int64_t count, int64_t, const Body& body) {
  if (count > 0) body(int64_t{0}, count);
}

}  // namespace bp::kernels
