// What the files of this backend share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
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

// What one negotiation made: the tables with this object as their `self`, bound to one host.
struct Instance {
  explicit Instance(const bp_host* host);
  Instance(const Instance&) = delete;
  ~Instance();

  // Leaves `message` in the host's error slot and returns `status`.
  bp_status fail(bp_status status, const std::string& message) const {
    return host->set_error(host->self, status, message.c_str());
  }

  const bp_host* host;
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
  std::vector<const bp_kernel*> plain_kernels;  // Those behind `kernels`, which may lack oneDNN's.
  Executor executor;  // Runs the work of all devices: streams of one wait for those of another.
  std::vector<std::unique_ptr<Device>> cards;
  std::unique_ptr<Collectives> collectives;         // Ends before the executor does.
  std::shared_ptr<kernels::ProgramCache> programs;  // NULL in a build without oneDNN.
  Hooks hooks;
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<SharedEvents> shared_events;  // NULL with option sharing=no.
  std::unique_ptr<Layouts> layouts;             // NULL where nothing is in tiles.
  std::unique_ptr<Compiler> compiler;
  bp_layout_ops layout_table;
  bp_graph_ops graphs;
  bp_profiler_ops profiling;
  bp_compiler_ops compilation;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

using bp::refuse;
using bp::require;

// Runs body(const Instance&), which returns a status or throws, for an entry of a table.
template <typename Body>
bp_status entry(void* self, Body&& body) {
  return bp::entry<Instance>(self, std::forward<Body>(body));
}

// Each makes one of the optional tables. Captures are put in front of the tables of streams, events
// and memory, so what is made before sees these without captures. Layouts are put in front of the
// kernels that take them.
void make_layouts(Instance& instance);
void make_profiler(Instance& instance);
void put_captures(Instance& instance);
void make_compiler(Instance& instance);

// Takes what the options say that the device lacks out of the tables, and puts events that
// processes share in front of those of events and streams, if there are such.
void fit_tables(Instance& instance);

// A launch while a capture is open: records it if its stream captures, else runs it. `body` does
// all that a launch does; with an argument of true, all but submit.
bp_status launch_in_capture(const Instance& instance, const bp_kernel& kernel,
                            const bp_launch& launch, const void* args,
                            const std::function<bp_status(bool only_checks)>& body);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_virtual_memory_ops kVirtualMemory;
extern const bp_test_fault_ops kFaults;

}  // namespace bp::sim
