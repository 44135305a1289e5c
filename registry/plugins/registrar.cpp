#include "registry/plugins/registrar.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "backplane/host.h"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/calls/claims.hpp"

namespace bp::core {
namespace {

// A name that can be a template argument.
struct Name {
  char data[24]{};
  template <size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): string literals convert.
  constexpr Name(const char (&text)[N]) {
    std::copy_n(text, N, data);
  }
};

struct Outcome {
  uint32_t outcome = BP_ADD_ACCEPTED;
  std::string reason;
};

Registration& impl(void* self) { return *static_cast<Registration*>(self); }

// Writes one result. An entry that was not accepted is also a line of the report.
void report(Registration& r, const std::string& entry, Outcome outcome, bp_add_result* out_result) {
  const char* reason = nullptr;
  if (outcome.outcome != BP_ADD_ACCEPTED) {
    const char* verb = outcome.outcome == BP_ADD_SHADOWED ? ": shadowed by " : ": rejected: ";
    r.refusals += r.name + "/" + entry + verb + outcome.reason + "\n";
    reason = r.reasons.emplace_back(std::move(outcome.reason)).c_str();
  }
  if (out_result != nullptr) *out_result = {outcome.outcome, 0, reason};
}

// Does what report() does, and adds a line for the slots that an accepted table lacks and should
// have.
void report_table(Registration& r, const char* entry, const Outcome& outcome,
                  const std::string& missing, bp_add_result* out_result) {
  report(r, entry, outcome, out_result);
  if (missing.empty() || outcome.outcome != BP_ADD_ACCEPTED) return;
  r.refusals += r.name + "/" + entry + ": answers BP_UNSUPPORTED for what every backend needs: " +
                missing.substr(0, missing.size() - 1) + "\n";
}

bp_status unreadable(const char* what) { return set_error(nullptr, BP_INVALID_ARGUMENT, what); }

std::vector<RegisteredDevice*> listed_devices(Registration& r, uint64_t count,
                                              bp_device* const* list) {
  std::vector<RegisteredDevice*> devices;
  for (RegisteredDevice& device : r.devices) {
    if (count == 0 || std::find(list, list + count, device.device) != list + count) {
      devices.push_back(&device);
    }
  }
  return devices;
}

// Returns why the list of an entry cannot be used, or "" if it can.
std::string list_defect(Registration& r, uint64_t count, bp_device* const* list) {
  for (uint64_t i = 0; i < count; ++i) {
    if (std::ranges::count(r.devices, list[i], &RegisteredDevice::device) == 0) {
      return "device " + std::to_string(i) + " of its list was not added";
    }
  }
  return "";
}

// Returns the place for a table among those of a device, or NULL if the device has such a table.
template <typename Table>
Table* free_place(Tables& tables, Table Tables::*member, const Table& /*table*/) {
  Table& ours = tables.*member;
  return ours.struct_size == 0 ? &ours : nullptr;
}

// Process groups have a place for each name.
bp_process_group_ops* free_place(Tables& tables, bp_process_group_ops Tables::*member,
                                 const bp_process_group_ops& table) {
  bp_process_group_ops& first = tables.*member;
  if (first.struct_size == 0) return &first;
  const auto has_name = [name = std::string_view(table.name)](const bp_process_group_ops& ours) {
    return ours.name == name;
  };
  if (has_name(first) || std::ranges::any_of(tables.more_process_groups, has_name)) return nullptr;
  return &tables.more_process_groups.emplace_back();
}

// Puts `table` where each listed device has a place for it.
template <typename Table>
Outcome add_table(Registration& r, uint64_t count, bp_device* const* list, const char* name,
                  Table Tables::*member, const Table& table) {
  if (std::string defect = list_defect(r, count, list); !defect.empty()) {
    return {BP_ADD_REJECTED, defect};
  }
  const std::vector<RegisteredDevice*> devices = listed_devices(r, count, list);
  bool is_used = devices.empty();
  for (RegisteredDevice* device : devices) {
    Table* const ours = free_place(device->tables, member, table);
    if (ours == nullptr) continue;
    *ours = table;
    is_used = true;
  }
  if (!is_used) return {BP_ADD_SHADOWED, std::string(name) + " added before"};
  return {};
}

// Lists the devices that `devices` enumerates, for an entry that lists none.
bp_status enumerate(const bp_device_ops& devices, std::vector<bp_device*>& list) {
  uint64_t count = 0;
  bp_status status = devices.enumerate(devices.self, 0, nullptr, &count);
  if (status != BP_OK || count == 0) return status;
  list.resize(count);
  status = devices.enumerate(devices.self, count, list.data(), &count);
  if (status == BP_OK) list.resize(std::min<uint64_t>(count, list.size()));
  return status;
}

Outcome add_listed_devices(Registration& r, const bp_device_ops& devices,
                           const std::vector<bp_device*>& list) {
  bool is_used = list.empty();
  for (bp_device* device : list) {
    if (device == nullptr) return {BP_ADD_REJECTED, "a device is NULL"};
    if (std::ranges::count(r.devices, device, &RegisteredDevice::device) != 0) continue;
    r.devices.push_back({device, {.devices = devices}});
    is_used = true;
  }
  if (!is_used) return {BP_ADD_SHADOWED, "devices added before"};
  return {};
}

bp_status add_device(void* self, uint64_t device_count, bp_device* const* device_list,
                     const bp_device_ops* devices, bp_add_result* out_result) noexcept {
  return guarded([&] {
    if (devices == nullptr || (device_count != 0 && device_list == nullptr)) {
      return unreadable("add_device: devices or device_list is NULL");
    }
    Registration& r = impl(self);
    bp_device_ops ours{};
    std::string missing;
    if (std::string defect = copy_table(devices, ours, missing); !defect.empty()) {
      report(r, "devices", {BP_ADD_REJECTED, defect}, out_result);
      return bp_status{BP_OK};
    }
    std::vector<bp_device*> list(device_list, device_list + device_count);
    if (device_count == 0 && enumerate(ours, list) != BP_OK) {
      report(r, "devices", {BP_ADD_REJECTED, "enumerate failed: " + take_error()}, out_result);
      return bp_status{BP_OK};
    }
    report_table(r, "devices", add_listed_devices(r, ours, list), missing, out_result);
    return bp_status{BP_OK};
  });
}

// Adds an entry that has one table.
template <typename Table, Table Tables::*kMember, Name kName>
bp_status add_one(void* self, uint64_t device_count, bp_device* const* device_list,
                  const Table* table, bp_add_result* out_result) noexcept {
  return guarded([&] {
    if (table == nullptr || (device_count != 0 && device_list == nullptr)) {
      const std::string name(kName.data);
      return unreadable(("add " + name + ": " + name + " or device_list is NULL").c_str());
    }
    Registration& r = impl(self);
    Table ours{};
    std::string missing;
    if (std::string defect = copy_table(table, ours, missing); !defect.empty()) {
      report(r, kName.data, {BP_ADD_REJECTED, defect}, out_result);
      return bp_status{BP_OK};
    }
    report_table(r, kName.data, add_table(r, device_count, device_list, kName.data, kMember, ours),
                 missing, out_result);
    return bp_status{BP_OK};
  });
}

bp_status add_streams(void* self, uint64_t device_count, bp_device* const* device_list,
                      const bp_stream_ops* streams, const bp_event_ops* events,
                      bp_add_result* out_result) noexcept {
  return guarded([&] {
    if (streams == nullptr || events == nullptr || (device_count != 0 && device_list == nullptr)) {
      return unreadable("add_streams: streams, events or device_list is NULL");
    }
    Registration& r = impl(self);
    bp_stream_ops our_streams{};
    bp_event_ops our_events{};
    std::string missing, missing_events;
    std::string defect = copy_table(streams, our_streams, missing);
    if (defect.empty()) defect = copy_table(events, our_events, missing_events);
    if (!defect.empty()) {
      report(r, "streams", {BP_ADD_REJECTED, defect}, out_result);
      return bp_status{BP_OK};
    }
    const Outcome outcome =
        add_table(r, device_count, device_list, "streams", &Tables::streams, our_streams);
    // Both tables of a device come together, so an entry that shadows one shadows the other too.
    static_cast<void>(
        add_table(r, device_count, device_list, "events", &Tables::events, our_events));
    report_table(r, "streams", outcome, missing + missing_events, out_result);
    return bp_status{BP_OK};
  });
}

// Returns whether `earlier` serves each device of `later`.
bool shadows(const std::vector<bp_device*>& earlier, const std::vector<bp_device*>& later) {
  if (earlier.empty()) return true;
  return !later.empty() && std::ranges::all_of(later, [&](bp_device* device) {
    return std::ranges::count(earlier, device) != 0;
  });
}

bool is_same_op(const bp_kernel& a, const bp_kernel& b) {
  if (a.op != b.op || a.op != 0) return a.op == b.op;
  return std::string_view(a.op_name) == b.op_name;
}

Outcome add_kernel(Registration& r, const RegisteredKernel& added) {
  const bp_kernel& kernel = *added.kernel;
  std::string defect = struct_defect(&kernel, BP_STRUCT_KERNEL, kFirstKernel);
  if (defect.empty()) defect = kernel_defect(kernel);
  if (!defect.empty()) return {BP_ADD_REJECTED, defect};
  for (const auto& [earlier, devices] : r.kernels) {
    if (!is_same_op(*earlier, kernel) || earlier->name != std::string_view(kernel.name)) continue;
    if (shadows(devices, added.devices)) {
      return {BP_ADD_SHADOWED, std::string(earlier->name) + " added before"};
    }
  }
  const auto is_worse = [&](const RegisteredKernel& other) {
    return other.kernel->priority < kernel.priority;
  };
  r.kernels.insert(std::ranges::find_if(r.kernels, is_worse), added);
  for (const std::string& row : rejected_rows(kernel)) {
    r.refusals += r.name + "/" + kernel.name + ": rejected: " + row + "\n";
  }
  return {};
}

// Returns a name that can be printed before the kernel was checked.
std::string kernel_label(const bp_kernel* kernel, uint64_t index) {
  const bool is_readable = kernel != nullptr && kernel->struct_type == BP_STRUCT_KERNEL &&
                           kernel->struct_size >= kFirstKernel && kernel->name != nullptr;
  return is_readable ? clean_name(kernel->name) : "kernel " + std::to_string(index);
}

bp_status add_kernels(void* self, uint64_t device_count, bp_device* const* device_list,
                      uint64_t kernel_count, const bp_kernel* const* kernels,
                      bp_add_result* out_results) noexcept {
  return guarded([&] {
    if ((kernel_count != 0 && kernels == nullptr) ||
        (device_count != 0 && device_list == nullptr)) {
      return unreadable("add_kernels: kernels or device_list is NULL");
    }
    Registration& r = impl(self);
    const std::string defect = list_defect(r, device_count, device_list);
    for (uint64_t i = 0; i < kernel_count; ++i) {
      Outcome outcome{BP_ADD_REJECTED, kernels[i] == nullptr ? "it is NULL" : defect};
      if (outcome.reason.empty()) {
        outcome = add_kernel(r, {kernels[i], {device_list, device_list + device_count}});
      }
      report(r, kernel_label(kernels[i], i), std::move(outcome),
             out_results == nullptr ? nullptr : out_results + i);
    }
    return bp_status{BP_OK};
  });
}

bp_status add_ops(void* self, uint64_t op_count, const bp_op_desc* ops, uint64_t stride_bytes,
                  uint32_t* out_ops, bp_add_result* out_results) noexcept {
  return guarded([&] {
    Registration& r = impl(self);
    return add_described_ops(r.ops, {op_count, ops, stride_bytes}, out_ops,
                             [&](uint64_t i, const std::string& name, const std::string& refusal) {
                               const uint32_t outcome =
                                   refusal.empty() ? BP_ADD_ACCEPTED : BP_ADD_REJECTED;
                               report(r, "op " + name, {outcome, refusal},
                                      out_results == nullptr ? nullptr : out_results + i);
                             });
  });
}

bp_status add_dtype(void* /*self*/, const char* name, uint32_t bits, bp_dtype* out_dtype) noexcept {
  return bp_dtype_add(name, bits, out_dtype);
}

}  // namespace

bp_registrar make_registrar(Registration* registration) {
  return {
      .struct_size = sizeof(bp_registrar),
      .struct_type = BP_STRUCT_REGISTRAR,
      .next = nullptr,
      .self = registration,
      .add_device = add_device,
      .add_allocator = add_one<bp_allocator_ops, &Tables::allocator, "allocator">,
      .add_streams = add_streams,
      .add_kernels = add_kernels,
      .add_device_guard = add_one<bp_device_guard_ops, &Tables::guard, "guard">,
      .add_virtual_memory =
          add_one<bp_virtual_memory_ops, &Tables::virtual_memory, "virtual_memory">,
      .add_layout = add_one<bp_layout_ops, &Tables::layouts, "layouts">,
      .add_graph = add_one<bp_graph_ops, &Tables::graphs, "graphs">,
      .add_compiler = add_one<bp_compiler_ops, &Tables::compiler, "compiler">,
      .add_process_group = add_one<bp_process_group_ops, &Tables::process_groups, "process_groups">,
      .add_profiler = add_one<bp_profiler_ops, &Tables::profiler, "profiler">,
      .add_semaphore = add_one<bp_semaphore_ops, &Tables::semaphores, "semaphores">,
      .add_dtype = add_dtype,
      .add_ops = add_ops};
}

}  // namespace bp::core
