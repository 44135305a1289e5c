// Mutants of memory, streams, events and guards: the tables of the good backend with some of their
// entries replaced.
//
// Handles pass through as they are. All tables that the host sees have one `self`, the Runtime, and
// each entry that a mutant leaves alone calls that of the good backend.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "backplane/backend.h"

namespace bp::mutants {

struct Tables {
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_layout_ops layouts;
};

struct Runtime;

// What a mutant does beside its entries. Whatever is NULL does not happen.
struct RuntimeMutant {
  std::string_view id;
  // Replaces entries of `bent`; called behind each take().
  void (*bend)(Runtime& runtime);
  // The stream that a kernel is launched on in place of `stream`; before the launch.
  bp_stream* (*launch_stream)(Runtime& runtime, const bp_launch& launch);
  const bp_device_guard_ops* guard;  // What it registers as the guard of all devices.
  bp_status (*enter)(const bp_host& host, std::string_view strength,
                     const bp_entry_request& request,
                     bp_entry_reply& reply);  // In the entry, behind the good one.
  void (*end)(Runtime& runtime);              // Before the good backend is shut down.
  bool has_layouts = false;                   // The host sees the table of layouts too.
};

struct Runtime {
  Runtime(const RuntimeMutant& its_mutant, std::string_view its_strength, const bp_host& its_host)
      : mutant(its_mutant), strength(its_strength), host(its_host) {}

  const RuntimeMutant& mutant;
  const std::string strength;
  const bp_host& host;
  Tables good{}, bent{};
  std::mutex mutex;             // Guards `state`, and what the mutants keep in it.
  std::shared_ptr<void> state;  // Of the mutant; made when it is asked for first.

  // Made by the first call, which is in bend().
  template <typename State>
  State& state_as() {
    if (state == nullptr) state = std::make_shared<State>();
    return *static_cast<State*>(state.get());
  }
};

inline Runtime& runtime_of(void* self) { return *static_cast<Runtime*>(self); }

// Takes a table of the good backend; what the host is to see in its place is then in `bent`.
void take(Runtime& runtime, const bp_device_ops& table);
void take(Runtime& runtime, const bp_allocator_ops& table);
void take(Runtime& runtime, const bp_stream_ops& streams, const bp_event_ops& events);
void take(Runtime& runtime, const bp_layout_ops& table);

// The tables: mutants of order and failures, of memory, of the whole instance, and of tables that a
// device may do without.
std::span<const RuntimeMutant> stream_mutants();
std::span<const RuntimeMutant> lazy_mutants();
std::span<const RuntimeMutant> memory_mutants();
std::span<const RuntimeMutant> instance_mutants();
std::span<const RuntimeMutant> table_mutants();

// NULL if there is none of this id.
const RuntimeMutant* find_runtime_mutant(std::string_view id);

// "24, 25, ...", for a message.
std::string runtime_mutant_ids();

}  // namespace bp::mutants
