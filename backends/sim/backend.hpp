// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/sim/options.hpp"
#include "backplane/backend.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/test_fault.h"
#include "backplane/virtual_memory.h"

namespace bp::kernels {

class ProgramCache;
std::shared_ptr<ProgramCache> make_program_cache();

}  // namespace bp::kernels

namespace bp {

class Captures;
class Compiler;
class Layouts;
class Profiler;
class SharedEvents;

}  // namespace bp

namespace bp::sim {

class Device;
struct Collectives;

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
  bp_device_guard_ops guard;
  bp_virtual_memory_ops virtual_memory;
  bp_test_fault_ops faults;
  std::vector<bp_kernel> kernels;
  std::vector<const bp_kernel*> plain_kernels;  // Their originals, perhaps without oneDNN's.
  Executor executor;  // Runs the work of all devices, because their streams may wait for each
                      // other.
  std::vector<std::unique_ptr<Device>> cards;
  std::unique_ptr<Collectives> collectives;         // It ends before the executor.
  std::shared_ptr<kernels::ProgramCache> programs;  // NULL in a build without oneDNN.
  Hooks hooks;
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<SharedEvents> shared_events;  // NULL with option sharing=no.
  std::unique_ptr<Layouts> layouts;             // NULL if nothing is in tiles.
  std::unique_ptr<Compiler> compiler;
  bp_layout_ops layout_table;
  bp_graph_ops graphs;
  bp_profiler_ops profiling;
  bp_compiler_ops compilation;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
// make_layouts() also replaces functions of the kernels that take layouts.
void make_layouts(Instance& instance);
void make_profiler(Instance& instance);
void put_captures(Instance& instance);
void make_compiler(Instance& instance);

// Removes from the tables what the device lacks according to the options. If processes can share
// events, puts SharedEventFront in front of the tables of events and streams.
void fit_tables(Instance& instance);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_virtual_memory_ops kVirtualMemory;
extern const bp_test_fault_ops kFaults;

}  // namespace bp::sim
