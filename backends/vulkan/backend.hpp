// The types and functions that the files of this backend share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/inventory.hpp"
#include "backends/vulkan/options.hpp"
#include "backplane/backend.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/test_fault.h"

namespace bp {

class Captures;
class Compiler;
class Profiler;

}  // namespace bp

namespace bp::vulkan {

class Device;

// One instance of the backend, bound to one host. It is the `self` of the tables that it holds.
struct Instance : HostedInstance {
  explicit Instance(const bp_host* host);
  Instance(const Instance&) = delete;
  ~Instance();

  const Options options;
  const Survey survey;
  bp_backend backend;
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_device_guard_ops guard;
  bp_test_fault_ops faults;
  std::vector<bp_kernel> kernels;
  Executor executor;  // Runs callbacks, and work that streams hold back.
  std::vector<std::unique_ptr<Device>> cards;
  Hooks hooks;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Compiler> compiler;  // It is destroyed first, because it uses the others.
  bp_graph_ops graphs;
  bp_compiler_ops compilation;
};

inline Instance& instance(void* self) { return *static_cast<Instance*>(self); }

// Each function makes one of the optional tables. put_captures() replaces entries of the tables of
// streams, events and memory; tables that are made before it use the entries without captures.
void put_captures(Instance& instance);
void make_compiler(Instance& instance);

// The tables of this backend, without their `self`.
extern const bp_device_ops kDevices;
extern const bp_allocator_ops kAllocator;
extern const bp_stream_ops kStreams;
extern const bp_event_ops kEvents;
extern const bp_device_guard_ops kGuard;
extern const bp_test_fault_ops kFaults;

}  // namespace bp::vulkan
