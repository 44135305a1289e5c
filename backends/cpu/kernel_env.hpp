// Everything that the kernels of this backend know of it: where elements lie, the queue that runs
// the work, how work fails, and threads. Kernel sources include this file as "kernel_env.hpp", by
// include path, so that another backend can build the kernels with an environment of its own.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/kernel.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/plan.hpp"

namespace bp::kernels {

// Returns the address of the first element. The address has no meaning if the tensor has no
// elements.
template <typename T>
T* data(const bp_tensor& t) {
  if (t.buffer == nullptr) return nullptr;
  return reinterpret_cast<T*>(cpu::buffer(t.buffer)->address + t.byte_offset);
}

// Returns the address of a range, or NULL.
inline std::byte* address_of(const bp_buffer_ref& range) {
  if (range.buffer == nullptr) return nullptr;
  return cpu::buffer(range.buffer)->address + range.byte_offset;
}

// What a kernel knows of its backend, also when nothing is launched.
class Env {
 public:
  explicit Env(const cpu::Instance& instance) : instance_(instance) {}

  // Runs body(const Env&) for a function of `kernel`, and turns exceptions into a status.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device*, Body&& body) {
    const cpu::Instance& i = cpu::instance(kernel.state);
    return guarded(*i.host, [&] { return body(Env(i)); });
  }

  // Returns how many threads the work may use.
  int thread_count() const { return instance_.device->thread_count(); }

  // Returns the cache in which kernels that use oneDNN keep their primitives.
  ProgramCache& programs() const { return *instance_.programs; }

 protected:
  const cpu::Instance& instance_;
};

// One launch: what a kernel has besides the arguments of its op.
class Launch : public Env {
 public:
  Launch(const cpu::Instance& instance, const bp_kernel& kernel, const bp_launch& launch,
         const void* args, const cpu::Stream& stream)
      : Env(instance), kernel_(kernel), launch_(launch), args_(args), stream_(stream) {}

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
  std::byte* packed(const bp_buffer_ref& range) const { return address_of(range); }

  // Submits `task`, a callable without arguments. The task may run after launch() has returned,
  // when the frame and its tensors no longer exist, so it holds what it needs by value. A task
  // fails by throwing StatusError.
  template <typename Task>
  bp_status submit(Task&& task) const {
    if (only_checks_) [[unlikely]] {
      return BP_OK;
    }
    if (is_watched(instance_, stream_)) [[unlikely]] {
      return cpu::submit_watched(instance_, kernel_, launch_, args_, std::forward<Task>(task));
    }
    return stream_.queue->submit(std::forward<Task>(task));
  }

  // Does what submit(make_task()) does. If the work runs before this function returns, it calls
  // run() instead, which may refer to the frame and to the caller's variables, so that nothing is
  // copied.
  template <typename Run, typename MakeTask>
  bp_status submit_or_run(const Run& run, const MakeTask& make_task) const {
    const bool may_run_here = !only_checks_ && !is_watched(instance_, stream_);
    if (may_run_here && stream_.queue->try_run_here(run)) return BP_OK;
    return submit(make_task());
  }

  // Refuses the launch: returns `status`, with the text in the thread's error slot.
  bp_status refuse(bp_status status, const std::string& text) const {
    return instance_.fail(status, text);
  }

 private:
  const bp_kernel& kernel_;
  const bp_launch& launch_;
  const void* const args_;
  const cpu::Stream& stream_;
  bool only_checks_ = false;
};

// Runs body(Launch&) for a launch that the host made.
template <typename Body>
bp_status with_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                      const Body& body) {
  const cpu::Instance& i = cpu::instance(kernel->state);
  const auto make = [&] {
    return Launch(i, *kernel, *launch, args, cpu::stream_of(launch->stream, "launch"));
  };
  return bp::with_launch(i, *kernel, launch, args, make, body);
}

// How kernels are launched, for plan.hpp of the shell.
struct Launcher : LauncherOf<cpu::Instance, Env, Launch> {
  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    return with_launch(kernel, launch, args,
                       [&](Launch& context) { return kBody(*kernel, args, context); });
  }
};

// Which thread of the team that runs a parallel loop this is: 0 to one less than its size.
inline int thread_number() { return omp_get_thread_num(); }

// Splits [0, count) into parts and calls body(begin, end) for each, on up to `threads` threads.
// Each part but the last has at least `grain` elements, and each begins at a multiple of `grain`.
// If `count` is below 2 * grain, everything runs on the calling thread. `body` must not throw.
template <typename Body>
void parallel_for(int threads, int64_t count, int64_t grain, const Body& body) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(threads, count / grain);
  if (parts <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    body(grains * part / parts * grain, std::min(count, grains * (part + 1) / parts * grain));
  }
}

}  // namespace bp::kernels
