// The entries that pass calls through: one for each slot of the tables.
#include "conformance/mutants/runtime.hpp"

#include <cstddef>
#include <vector>

#include "conformance/mutants/faulty_kernel.hpp"

namespace bp::mutants {
namespace {

template <auto slot, typename Type = decltype(slot)>
struct Through;
template <auto slot, typename Table, typename... Arguments>
struct Through<slot, bp_status (*Table::*)(void*, Arguments...)> {
  static bp_status call(void* self, Arguments... arguments) {
    const Table& good = good_of(runtime_of(self), static_cast<const Table*>(nullptr));
    return (good.*slot)(good.self, arguments...);
  }
  static void connect(Table& bent, const Table& good) {
    bent.*slot = good.*slot == nullptr ? nullptr : call;
  }
};

template <auto... slots, typename Table>
void connect(Table& bent, const Table& good) {
  (Through<slots>::connect(bent, good), ...);
}

// A table of this build's size; slots that the good table lacks are NULL.
template <typename Table>
void read(const Table& theirs, Runtime& runtime, Table& good, Table& bent) {
  bp_struct_read(&theirs, sizeof(bp_struct_header), &good, sizeof(Table), nullptr);
  bent = good;
  bent.self = &runtime;
}

// A slot that a later release appends has to be passed on too.
template <typename Table>
constexpr bool has_slots(size_t count) {
  return sizeof(Table) == offsetof(Table, self) + (count + 1) * sizeof(void*);
}
static_assert(has_slots<bp_device_ops>(8));
static_assert(has_slots<bp_allocator_ops>(20));
static_assert(has_slots<bp_stream_ops>(13));
static_assert(has_slots<bp_event_ops>(10));
static_assert(has_slots<bp_layout_ops>(7));
static_assert(has_slots<bp_process_group_ops>(1 + 11));  // The name, and the slots.
static_assert(has_slots<bp_semaphore_ops>(10));
static_assert(has_slots<bp_compiler_ops>(13));

void bend(Runtime& runtime) {
  if (runtime.mutant.bend != nullptr) runtime.mutant.bend(runtime);
}

}  // namespace

void take(Runtime& runtime, const bp_device_ops& table) {
  bp_device_ops &good = runtime.good.devices, &bent = runtime.bent.devices;
  read(table, runtime, good, bent);
  using T = bp_device_ops;
  connect<&T::probe, &T::enumerate, &T::properties, &T::synchronize, &T::memory_info,
          &T::generation, &T::reset, &T::set_option>(bent, good);
  bend(runtime);
}

void take(Runtime& runtime, const bp_allocator_ops& table) {
  bp_allocator_ops &good = runtime.good.allocator, &bent = runtime.bent.allocator;
  read(table, runtime, good, bent);
  using T = bp_allocator_ops;
  connect<&T::allocate, &T::deallocate, &T::address, &T::buffer_info, &T::map, &T::unmap, &T::flush,
          &T::invalidate, &T::copy, &T::copy_from_host, &T::copy_to_host, &T::copy_peer,
          &T::peer_info, &T::fill, &T::wrap_address, &T::address_info, &T::register_host,
          &T::unregister_host, &T::export_buffer, &T::import_buffer>(bent, good);
  bend(runtime);
}

void take(Runtime& runtime, const bp_stream_ops& streams, const bp_event_ops& events) {
  bp_stream_ops &good = runtime.good.streams, &bent = runtime.bent.streams;
  read(streams, runtime, good, bent);
  using S = bp_stream_ops;
  connect<&S::create, &S::default_stream, &S::destroy, &S::query, &S::status, &S::clear_failure,
          &S::synchronize, &S::flush, &S::wait_event, &S::add_callback, &S::wrap_native,
          &S::native_handle, &S::is_capturing>(bent, good);
  read(events, runtime, runtime.good.events, runtime.bent.events);
  using E = bp_event_ops;
  connect<&E::create, &E::destroy, &E::record, &E::query, &E::synchronize, &E::elapsed_ns,
          &E::signal, &E::export_event, &E::import_event, &E::on_complete>(runtime.bent.events,
                                                                           runtime.good.events);
  bend(runtime);
}

void take(Runtime& runtime, const bp_layout_ops& table) {
  bp_layout_ops &good = runtime.good.layouts, &bent = runtime.bent.layouts;
  read(table, runtime, good, bent);
  using T = bp_layout_ops;
  connect<&T::preferred, &T::from_blob, &T::equal, &T::retain, &T::release, &T::convert,
          &T::from_desc>(bent, good);
  bend(runtime);
}

void take(Runtime& runtime, const bp_process_group_ops& table) {
  bp_process_group_ops &good = runtime.good.groups, &bent = runtime.bent.groups;
  read(table, runtime, good, bent);
  using T = bp_process_group_ops;
  connect<&T::create, &T::destroy, &T::supports, &T::submit, &T::abort, &T::status, &T::split,
          &T::shrink, &T::register_buffer, &T::deregister_buffer, &T::rank>(bent, good);
  bend(runtime);
}

void take(Runtime& runtime, const bp_semaphore_ops& table) {
  bp_semaphore_ops &good = runtime.good.semaphores, &bent = runtime.bent.semaphores;
  read(table, runtime, good, bent);
  using T = bp_semaphore_ops;
  connect<&T::create, &T::destroy, &T::query, &T::signal, &T::synchronize, &T::submit_signal,
          &T::submit_wait, &T::clear_failure, &T::export_semaphore, &T::import_semaphore>(bent,
                                                                                          good);
  bend(runtime);
}

void take(Runtime& runtime, const bp_compiler_ops& table) {
  bp_compiler_ops &good = runtime.good.compiler, &bent = runtime.bent.compiler;
  read(table, runtime, good, bent);
  using T = bp_compiler_ops;
  connect<&T::formats, &T::query, &T::fingerprint, &T::compile, &T::executable_kernel,
          &T::executable_info, &T::serialize, &T::deserialize, &T::validate, &T::release,
          &T::describe, &T::load, &T::unload>(bent, good);
  bend(runtime);
}

namespace {

std::vector<const RuntimeMutant*> all_runtime_mutants() {
  std::vector<const RuntimeMutant*> all;
  for (const auto table :
       {stream_mutants(), lazy_mutants(), memory_mutants(), instance_mutants(), table_mutants(),
        compiler_mutants(), residence_mutants(), leftover_mutants(), wait_mutants(),
        benign_tables(), faults::faulty_tables()}) {
    for (const RuntimeMutant& mutant : table) all.push_back(&mutant);
  }
  return all;
}

}  // namespace

const RuntimeMutant* find_runtime_mutant(std::string_view id, std::string_view strength) {
  for (const RuntimeMutant* mutant : all_runtime_mutants()) {
    const bool is_taken = mutant->takes == nullptr || mutant->takes(strength);
    if (mutant->id == id && is_taken) return mutant;
  }
  return nullptr;
}

std::string runtime_mutant_ids() {
  std::string ids;
  for (const RuntimeMutant* mutant : all_runtime_mutants()) {
    ids += (ids.empty() ? "" : ", ") + std::string(mutant->id);
  }
  return ids;
}

}  // namespace bp::mutants
