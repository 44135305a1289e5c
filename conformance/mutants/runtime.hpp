// Mutants of memory, streams, events and guards: the tables of the good backend with some of their
// entries replaced.
//
// Handles pass through unchanged. All tables that the host sees have one `self`, the Runtime. An
// entry that a mutant does not replace calls the entry of the good backend.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "backplane/backend.h"
#include "conformance/faults/fault.hpp"

namespace bp::mutants {

struct Tables {
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_layout_ops layouts;
  bp_process_group_ops groups;
  bp_semaphore_ops semaphores;
  bp_compiler_ops compiler;
};

struct Runtime;

// The parts of a mutant besides its entries. A part that is NULL does nothing.
struct RuntimeMutant {
  std::string_view id;
  // Replaces entries of `bent`; each take() calls it.
  void (*bend)(Runtime& runtime);
  // Returns the stream on which a kernel is launched, in place of that of `launch`. It is called
  // before the launch.
  bp_stream* (*launch_stream)(Runtime& runtime, const bp_launch& launch);
  const bp_device_guard_ops* guard;  // The guard that it registers for all devices.
  bp_status (*enter)(const bp_host& host, std::string_view strength,
                     const bp_entry_request& request,
                     bp_entry_reply& reply);  // Called in the entry, after that of the good
                                              // backend.
  void (*end)(Runtime& runtime);              // Called before the shutdown of the good backend.
  bool has_layouts = false;                   // The host sees the table of layouts too.
  bool has_groups = false;                    // The host sees the table of process groups too.
  bool has_semaphores = false;                // The host sees the table of semaphores too.
  bool has_compiler = false;                  // The host sees the compiler too.
  bool has_graphs = false;                    // The host sees the good table of graphs too.
  bool (*takes)(std::string_view strength) = nullptr;  // Whether it is the mutant of this strength;
                                                       // NULL: of each one.
  bool (*is_ready)(const Runtime& runtime) = nullptr;  // Whether it has found what it changes.
};

struct Runtime {
  Runtime(const RuntimeMutant& its_mutant, std::string_view its_strength, const bp_host& its_host)
      : mutant(its_mutant), strength(its_strength), host(its_host) {}

  const RuntimeMutant& mutant;
  const std::string strength;
  const bp_host& host;
  Tables good{}, bent{};
  faults::Sightings* sightings = nullptr;  // Never NULL once the plugin has chosen its mutant.
  std::mutex mutex;                        // Guards `state` and all that the mutants keep in it.
  std::shared_ptr<void> state;             // The mutant's state; the first access makes it.

  // Returns the state of the mutant. The first call, in bend(), makes it.
  template <typename State>
  State& state_as() {
    if (state == nullptr) state = std::make_shared<State>();
    return *static_cast<State*>(state.get());
  }
};

inline Runtime& runtime_of(void* self) { return *static_cast<Runtime*>(self); }

// Return the table of the good backend that has the type of the second argument.
inline const bp_device_ops& good_of(const Runtime& r, const bp_device_ops*) {
  return r.good.devices;
}
inline const bp_allocator_ops& good_of(const Runtime& r, const bp_allocator_ops*) {
  return r.good.allocator;
}
inline const bp_stream_ops& good_of(const Runtime& r, const bp_stream_ops*) {
  return r.good.streams;
}
inline const bp_event_ops& good_of(const Runtime& r, const bp_event_ops*) { return r.good.events; }
inline const bp_layout_ops& good_of(const Runtime& r, const bp_layout_ops*) {
  return r.good.layouts;
}
inline const bp_process_group_ops& good_of(const Runtime& r, const bp_process_group_ops*) {
  return r.good.groups;
}
inline const bp_semaphore_ops& good_of(const Runtime& r, const bp_semaphore_ops*) {
  return r.good.semaphores;
}
inline const bp_compiler_ops& good_of(const Runtime& r, const bp_compiler_ops*) {
  return r.good.compiler;
}

// Takes a table of the good backend, and puts the table that the host sees into `bent`.
void take(Runtime& runtime, const bp_device_ops& table);
void take(Runtime& runtime, const bp_allocator_ops& table);
void take(Runtime& runtime, const bp_stream_ops& streams, const bp_event_ops& events);
void take(Runtime& runtime, const bp_layout_ops& table);
void take(Runtime& runtime, const bp_process_group_ops& table);
void take(Runtime& runtime, const bp_semaphore_ops& table);
void take(Runtime& runtime, const bp_compiler_ops& table);

// Return the tables: mutants of order and failures, of memory, of the whole instance, of optional
// tables, of compilers, of memory that executables hold and share, of handles that are never ended,
// and of waits and declarations; and benign variants, on which no case may fail.
std::span<const RuntimeMutant> stream_mutants();
std::span<const RuntimeMutant> lazy_mutants();
std::span<const RuntimeMutant> memory_mutants();
std::span<const RuntimeMutant> instance_mutants();
std::span<const RuntimeMutant> table_mutants();
std::span<const RuntimeMutant> compiler_mutants();
std::span<const RuntimeMutant> residence_mutants();
std::span<const RuntimeMutant> leftover_mutants();
std::span<const RuntimeMutant> benign_tables();
std::span<const RuntimeMutant> wait_mutants();

// Returns NULL if no mutant has this id, or takes the strength.
const RuntimeMutant* find_runtime_mutant(std::string_view id, std::string_view strength);

// Returns "24, 25, ...", for a message.
std::string runtime_mutant_ids();

}  // namespace bp::mutants
