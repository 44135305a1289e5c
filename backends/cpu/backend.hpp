// What the files of this backend share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/cpu/options.hpp"
#include "backplane/shell/instance.hpp"

namespace bp::kernels {

class ProgramCache;
std::shared_ptr<ProgramCache> make_program_cache();

}  // namespace bp::kernels

namespace bp {

class Captures;
class Compiler;
class Profiler;

}  // namespace bp

namespace bp::cpu {

class Device;

// One instance of the backend, bound to one host. It is the `self` of the tables that it holds.
struct Instance : BackendInstance {
  explicit Instance(const bp_host* host);
  ~Instance();

  bool wait_for_work(uint64_t timeout_ns);

  const Options options;
  std::unique_ptr<Device> device;
  std::shared_ptr<kernels::ProgramCache> programs = kernels::make_program_cache();
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Compiler> compiler;  // It is destroyed first, because it uses the others.
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
void make_profiler(Instance& instance);
void put_captures(Instance& instance);

// The task of a launch, so that it leaves a record for the profiler.
std::function<void()> recorded(const Instance& instance, const bp_kernel& kernel,
                               const bp_launch& launch, std::function<void()> task);

// Submits the task of a launch while the profiler records, or a test ordered a failure. `args` is
// the frame of the launch.
bp_status submit_watched(const Instance& instance, const bp_kernel& kernel, const bp_launch& launch,
                         const void* args, std::function<void()> task);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_virtual_memory_ops kVirtualMemory;
extern const bp_semaphore_ops kSemaphores;
extern const bp_test_fault_ops kFaults;

}  // namespace bp::cpu
