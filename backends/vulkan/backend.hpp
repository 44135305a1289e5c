// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/inventory.hpp"
#include "backends/vulkan/options.hpp"
#include "backplane/shell/instance.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

class Captures;
class Compiler;
class Layouts;

}  // namespace bp

namespace bp::vulkan {

class Device;

// One instance of the backend, bound to one host. It is the `self` of the tables that it holds.
struct Instance : BackendInstance {
  explicit Instance(const bp_host* host);
  ~Instance();

  // Registers the tables. Kernels are registered twice if there are devices that take subnormal
  // numbers for 0: for these with numerics that say so, and for the others.
  bp_status register_tables(const bp_registrar* registrar) const;

  // Waits until all work that can end without the host has ended. Returns false if timeout_ns
  // passed first.
  bool wait_for_work(uint64_t timeout_ns);

  const Options options;
  const Survey survey;
  Executor executor;  // Runs callbacks, and work that streams hold back.
  std::vector<std::unique_ptr<Device>> cards;
  std::vector<bp_kernel> flushing_kernels;  // Empty if all devices keep subnormal numbers.
  std::unique_ptr<Layouts> layouts;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Compiler> compiler;  // It is destroyed first, because it uses the others.
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
void put_captures(Instance& instance);
void make_compiler(Instance& instance);
void make_layouts(Instance& instance);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_semaphore_ops kSemaphores;
extern const bp_test_fault_ops kFaults;

}  // namespace bp::vulkan
