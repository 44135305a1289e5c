// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/options.hpp"
#include "backplane/shell/instance.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

class Captures;
class Compiler;
class Layouts;

}  // namespace bp

namespace bp::cuda {

class Collectives;
class Device;
class Engines;

// One instance of the backend, bound to one host and to the CUDA that it works on. It is the `self`
// of the tables that it holds.
struct Instance : BackendInstance {
  Instance(const bp_host* host, Driver driver);
  ~Instance();

  // Waits until all work that can end without the host has ended. Returns false if timeout_ns
  // passed first.
  bool wait_for_work(uint64_t timeout_ns);

  const Driver driver;
  const Options options;
  // Submits work that was held back on the host behind events that only the host can complete.
  Executor executor{4};
  std::vector<std::unique_ptr<Device>> cards;
  std::unique_ptr<Engines> engines;          // It ends before the devices.
  std::unique_ptr<Collectives> collectives;  // It ends before both.
  std::unique_ptr<Layouts> layouts;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Compiler> compiler;  // It is destroyed first, because it uses the others.
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Returns the kernels that an instance registers.
std::span<const bp_kernel* const> kernel_list();

// put_captures() replaces entries of the tables of streams, events and memory; tables that are made
// before it use the entries without captures.
void put_captures(Instance& instance);
void make_compiler(Instance& instance);
void make_layouts(Instance& instance);

// Answers the host's request with an instance on `driver`. bp_backend_entry() passes the real
// driver.
bp_status enter(const bp_entry_request* request, bp_entry_reply* out_reply, Driver (*driver)());

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_semaphore_ops kSemaphores;
extern const bp_device_guard_ops kGuard;

}  // namespace bp::cuda
