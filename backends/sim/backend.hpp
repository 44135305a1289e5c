// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/sim/options.hpp"
#include "backplane/shell/instance.hpp"
#include "backplane/shell/queue.hpp"

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
struct Instance : BackendInstance {
  explicit Instance(const bp_host* host);
  ~Instance();

  bool wait_for_work(uint64_t timeout_ns) { return executors.wait_idle(timeout_ns); }
  std::span<const bp_op_desc> described_ops() const;

  const Options options;
  std::vector<const bp_kernel*> plain_kernels;  // The originals of `kernels`.
  Executors executors;  // Run the work of all devices, because their streams may wait for each
                        // other.
  std::vector<std::unique_ptr<Device>> cards;
  std::unique_ptr<Collectives> collectives;         // It ends before the executors.
  std::shared_ptr<kernels::ProgramCache> programs;  // NULL in a build without oneDNN.
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<SharedEvents> shared_events;  // NULL with option sharing=no.
  std::unique_ptr<Layouts> layouts;             // NULL if nothing is in tiles.
  std::unique_ptr<Compiler> compiler;
  // What programs run besides `kernels`, if these take tiles alone: kernels by strides, and copies
  // between strides and tiles.
  std::vector<bp_kernel> program_kernels;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
// make_layouts() also replaces functions of the kernels that take layouts, so make_compiler() comes
// after it.
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
extern const bp_semaphore_ops kSemaphores;
extern const bp_test_fault_ops kFaults;
extern const bp_kernel kScaledNeg;

// The ops of the device's own, and their kernels.
extern const std::span<const bp_op_desc> kOwnOps;
extern const bp_kernel kClip;

}  // namespace bp::sim
