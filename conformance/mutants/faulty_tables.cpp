// The mutant whose fault is drawn: `mutant=fault:TEXT`, for the entries of tables.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <thread>

#include "conformance/faults/entries.hpp"
#include "conformance/mutants/faulty_kernel.hpp"

namespace bp::faults {
namespace {

using mutants::Runtime;
using mutants::runtime_of;
using mutants::RuntimeMutant;

// The state of the one entry that has a fault.
struct EntryState {
  Fault fault;
  uint64_t calls = 0;
  std::thread::id first_thread;
  bool is_in_place = false;  // A table of the good backend has the entry.
};

EntryState& state_of(Runtime& runtime) { return runtime.state_as<EntryState>(); }

template <typename Argument>
const bp_buffer_ref* as_range(const Argument& argument) {
  if constexpr (kIsRange<Argument>) {
    return argument;
  } else {
    return nullptr;
  }
}

bool range_fits(std::string_view when, const bp_buffer_ref& range) {
  if (when == "offset") return range.byte_offset != 0;
  if (when == "odd") return range.size_bytes % 16 != 0;
  int exponent = 0;
  const std::string_view digits = when.substr(when.find('^') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  return range.size_bytes >= uint64_t{1} << exponent;
}

// Counts the call, and returns whether it fits the condition of the fault.
bool fits(Runtime& r, std::initializer_list<const bp_buffer_ref*> ranges) {
  EntryState& state = state_of(r);
  std::atomic_ref(r.sightings->calls).fetch_add(1);
  bool is_met = false;
  {
    const std::lock_guard lock(r.mutex);
    const uint64_t ordinal = ++state.calls;
    if (ordinal == 1) state.first_thread = std::this_thread::get_id();
    const std::string_view when = state.fault.when;
    if (when == "always") {
      is_met = true;
    } else if (when == "second") {
      is_met = ordinal > 1;
    } else if (when == "third") {
      is_met = ordinal % 3 == 0;
    } else if (when == "other_thread") {
      is_met = state.first_thread != std::this_thread::get_id();
    } else {
      is_met = std::ranges::any_of(ranges, [&](const bp_buffer_ref* range) {
        return range != nullptr && range_fits(when, *range);
      });
    }
  }
  if (is_met) std::atomic_ref(r.sightings->met).fetch_add(1);
  return is_met;
}

void note_change(Runtime& r) { std::atomic_ref(r.sightings->changed).fetch_add(1); }

// Returns the range that the fault makes of `range`. `storage` keeps it.
const bp_buffer_ref* wrong_range(Runtime& r, const bp_buffer_ref* range, bp_buffer_ref& storage) {
  const std::string_view kind = state_of(r).fault.kind;
  if (range == nullptr) return range;
  storage = *range;
  if (kind == "short1" && storage.size_bytes > 0) --storage.size_bytes;
  if (kind == "short16") storage.size_bytes -= storage.size_bytes % 16;
  if (kind == "offset_dropped") storage.byte_offset = 0;
  if (kind == "offset_rounded") storage.byte_offset -= storage.byte_offset % 64;
  const bool is_other =
      storage.size_bytes != range->size_bytes || storage.byte_offset != range->byte_offset;
  if (is_other) note_change(r);
  return is_other ? &storage : range;
}

bp_status told(Runtime& r, bp_status status) {
  const std::string_view kind = state_of(r).fault.kind;
  if (status == BP_OK) return status;
  if (kind == "accepted" && status != BP_TIMEOUT) return note_change(r), bp_status{BP_OK};
  if (kind != "other_status") return status;
  note_change(r);
  const bp_status other = status == BP_INVALID_ARGUMENT ? BP_UNSUPPORTED : BP_INVALID_ARGUMENT;
  return r.host.set_error(r.host.self, other, "the call is refused");
}

// Changes an out parameter as the fault says, after a call that ended with `status`.
template <typename Argument>
void change_out(Runtime& r, Argument out, bp_status status) {
  const std::string_view kind = state_of(r).fault.kind;
  if constexpr (kIsNumberOut<Argument>) {
    if (out == nullptr) return;
    const bool is_wrong =
        (kind == "number_off" && status == BP_OK) || (kind == "out_on_failure" && status != BP_OK);
    if (is_wrong) ++*out, note_change(r);
    if (kind == "early" && status == BP_OK && *out == 0) *out = 1, note_change(r);
  } else if constexpr (kIsNewHandle<Argument>) {
    if (out == nullptr || kind != "out_on_failure" || status == BP_OK) return;
    *out = nullptr;
    note_change(r);
  }
}

// An argument as the good backend gets it. A wait gets no time, if the fault says so.
template <typename Argument>
struct Passed {
  Passed(Runtime& r, Argument argument) : value(argument) {
    if constexpr (kIsRange<Argument>) {
      value = wrong_range(r, argument, storage);
    } else if constexpr (std::is_same_v<Argument, uint64_t>) {
      if (state_of(r).fault.kind == "early") value = 0;
    }
  }

  bp_buffer_ref storage{};
  Argument value;
};

template <auto slot, typename Type = decltype(slot)>
struct Faulty;
template <auto slot, typename Table, typename... Arguments>
struct Faulty<slot, bp_status (*Table::*)(void*, Arguments...)> {
  static bp_status call(void* self, Arguments... arguments) {
    Runtime& r = runtime_of(self);
    const Table& good = mutants::good_of(r, static_cast<const Table*>(nullptr));
    if (!fits(r, {as_range(arguments)...})) return (good.*slot)(good.self, arguments...);
    const std::string_view kind = state_of(r).fault.kind;
    if (kind == "failing") {
      note_change(r);
      return r.host.set_error(r.host.self, BP_INTERNAL, "a fault was put here");
    }
    if (kind == "skipped") return note_change(r), bp_status{BP_OK};
    if (kind == "twice" && (good.*slot)(good.self, arguments...) == BP_OK) note_change(r);
    bp_status status = (good.*slot)(good.self, Passed<Arguments>(r, arguments).value...);
    if (kind == "early" && status == BP_TIMEOUT) note_change(r), status = BP_OK;
    (change_out(r, arguments, status), ...);
    return told(r, status);
  }
  static bool replace(Table& bent, const Table& good) {
    if (good.*slot == nullptr) return false;
    bent.*slot = call;
    return true;
  }
};

bp_device_ops& table_of(mutants::Tables& t, const bp_device_ops*) { return t.devices; }
bp_allocator_ops& table_of(mutants::Tables& t, const bp_allocator_ops*) { return t.allocator; }
bp_stream_ops& table_of(mutants::Tables& t, const bp_stream_ops*) { return t.streams; }
bp_event_ops& table_of(mutants::Tables& t, const bp_event_ops*) { return t.events; }
bp_layout_ops& table_of(mutants::Tables& t, const bp_layout_ops*) { return t.layouts; }
bp_process_group_ops& table_of(mutants::Tables& t, const bp_process_group_ops*) { return t.groups; }
bp_semaphore_ops& table_of(mutants::Tables& t, const bp_semaphore_ops*) { return t.semaphores; }
bp_compiler_ops& table_of(mutants::Tables& t, const bp_compiler_ops*) { return t.compiler; }

template <auto slot, typename Table>
void replace(Runtime& r, std::string_view name) {
  if (state_of(r).fault.subject != name) return;
  const Table* type = nullptr;
  state_of(r).is_in_place |= Faulty<slot>::replace(table_of(r.bent, type), table_of(r.good, type));
}

void bend(Runtime& r) {
  EntryState& state = state_of(r);
  if (state.fault.subject.empty()) state.fault = *fault_from_text(r.strength);
#define BP_ENTRY(table, type, entry) replace<&type::entry, type>(r, #table "." #entry);
#include "conformance/faults/entries.def"
}

bool is_in_place(const Runtime& r) {
  return static_cast<const EntryState*>(r.state.get())->is_in_place;
}

bool is_of_table(std::string_view text) {
  const std::optional<Fault> fault = fault_from_text(text);
  return fault && fault->is_of_table();
}

constexpr RuntimeMutant kTable[] = {
    {.id = "fault",
     .bend = bend,
     .has_layouts = true,
     .has_groups = true,
     .has_semaphores = true,
     .has_compiler = true,
     .takes = is_of_table,
     .is_ready = is_in_place},
};

}  // namespace

std::span<const RuntimeMutant> faulty_tables() { return kTable; }

}  // namespace bp::faults
