// What one instance of the plugin has, and the kernels that it puts in the place of good ones.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "conformance/mutants/mutant.hpp"
#include "conformance/mutants/runtime.hpp"
#include "conformance/mutants/shared_sightings.hpp"

namespace bp::mutants {

struct CloseLibrary {
  void operator()(void* library) const;
};

// One instance of the plugin: a good backend, and the mutant that changes it.
struct Instance {
  const bp_host* host = nullptr;
  std::unique_ptr<void, CloseLibrary> library;
  const bp_backend* good = nullptr;
  bp_backend backend{};
  const Mutant* mutant = nullptr;    // The mutant of ops; NULL for a mutant of the runtime.
  std::unique_ptr<Runtime> runtime;  // NULL for a mutant of ops.
  std::string strength;
  bp_allocator_ops allocator{};
  bp_stream_ops streams{};
  bp_event_ops events{};
  SharedSightings sightings;
  std::deque<Wrapped> kernels;
};

// Returns the kernel with the launch of the mutant, owned by `instance`.
const bp_kernel* wrap(Instance& instance, const bp_kernel& good);

}  // namespace bp::mutants
