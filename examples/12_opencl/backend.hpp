// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <vector>

#include "backplane/shell/instance.hpp"
#include "backplane/shell/options.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

class Captures;
class Compiler;
class Layouts;

}  // namespace bp

namespace acme_opencl {

class Device;

// One instance of the backend, bound to one host. It is the `self` of the tables that it holds.
struct Instance : bp::BackendInstance {
  explicit Instance(const bp_host* host);
  ~Instance();

  bool wait_for_work(uint64_t timeout_ns) { return executors.wait_idle(timeout_ns); }

  const bp::ChosenDevices chosen;  // The option "devices".
  bp::Executors executors;         // Run the work of all devices, which may wait for each other.
  std::vector<std::unique_ptr<Device>> cards;
  std::unique_ptr<bp::Captures> captures;
  std::unique_ptr<bp::Layouts> layouts;  // NULL: tensors have strides alone.
  std::unique_ptr<bp::Compiler> compiler;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// put_captures() makes the table of graphs, and replaces entries of the tables of streams, events
// and memory. make_compiler() makes the table of compilers, which runs programs by the kernels.
void put_captures(Instance& instance);
void make_compiler(Instance& instance);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_semaphore_ops kSemaphores;
extern const bp_test_fault_ops kFaults;

}  // namespace acme_opencl
