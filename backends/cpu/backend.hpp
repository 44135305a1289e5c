// What the files of this backend share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/options.hpp"
#include "backplane/backend.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/hooks.hpp"

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
struct Instance : HostedInstance {
  explicit Instance(const bp_host* host);
  Instance(const Instance&) = delete;
  ~Instance();

  const Options options;
  bp_backend backend;
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_virtual_memory_ops virtual_memory;
  std::vector<bp_kernel> kernels;
  std::unique_ptr<Device> device;
  std::shared_ptr<kernels::ProgramCache> programs = kernels::make_program_cache();
  Hooks hooks;
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Compiler> compiler;  // It is destroyed first, because it uses the others.
  bp_graph_ops graphs;
  bp_profiler_ops profiling;
  bp_compiler_ops compilation;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
void make_profiler(Instance& instance);
void put_captures(Instance& instance);
void make_compiler(Instance& instance);

// The task of a launch, so that it leaves a record for the profiler.
std::function<void()> recorded(const Instance& instance, const bp_kernel& kernel,
                               const bp_launch& launch, std::function<void()> task);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_virtual_memory_ops kVirtualMemory;

}  // namespace bp::cpu
