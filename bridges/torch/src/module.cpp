// The Python module torch_backplane._C. torch_backplane/_device.py is what people use.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backplane/host.h"
#include "distributed/process_group.h"
#include "fallback.h"
#include "graph.h"
#include "memory.h"
#include "random.h"
#include "streams.h"
#include "table.h"

namespace py = pybind11;

namespace bpt {

std::vector<std::string> registered_names();
std::vector<std::string> unbound_rows();
void set_without_attention(bool is_without);
void add_capsules(py::module_& m);
void register_event_times();
void register_kineto();

namespace {

py::dict properties(int index) {
  const bp_target* target = device_at(static_cast<c10::DeviceIndex>(index)).target;
  const bp_device_properties& own = *target->properties;
  py::dict result;
  result["name"] = std::string(own.name);
  result["target"] = std::string(target->name);
  result["plugin"] = std::string(target->plugin->name);
  result["version"] = std::string(target->plugin->version);
  result["path"] = std::string(target->plugin->path);
  result["compute_unit_count"] = own.compute_unit_count;
  const auto* heap = own.heaps;
  result["total_memory"] = heap->size_bytes;
  std::vector<std::string> dtypes;
  for (uint64_t i = 0; i < own.dtype_count; ++i) {
    if (const char* name = bp_dtype_name(own.dtypes[i])) dtypes.emplace_back(name);
  }
  result["dtypes"] = dtypes;
  result["dlpack_device"] = std::pair(own.dlpack_device_type, own.dlpack_device_id);
  return result;
}

py::dict memory(int index) {
  const bp_cache_statistics own = statistics_of(static_cast<c10::DeviceIndex>(index));
  py::dict result;
  result["allocated_bytes.all.current"] = own.allocated_bytes;
  result["allocated_bytes.all.peak"] = own.allocated_peak_bytes;
  result["reserved_bytes.all.current"] = own.reserved_bytes;
  result["reserved_bytes.all.peak"] = own.reserved_peak_bytes;
  result["requested_bytes.all.current"] = own.requested_bytes;
  result["allocation.all.allocated"] = own.allocation_count;
  result["allocation.all.freed"] = own.free_count;
  result["num_alloc_retries"] = own.retry_count;
  result["num_ooms"] = own.out_of_memory_count;
  return result;
}

// How the library served the calls of each op: by kernels, by other ops, and so on.
py::dict statistics(int index) {
  const bp_target* target = device_at(static_cast<c10::DeviceIndex>(index)).target;
  py::dict result;
  for (uint32_t op = bp_op_next(0); op != 0; op = bp_op_next(op)) {
    bp_dispatch_statistics own{};
    own.struct_size = sizeof(own);
    own.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
    if (bp_target_statistics(target, op, &own) != BP_OK) continue;
    if (own.native_count + own.decomposed_count == 0) continue;
    py::dict counts;
    counts["native"] = own.native_count;
    counts["decomposed"] = own.decomposed_count;
    counts["copied_scalar"] = own.copied_scalar_count;
    counts["realigned"] = own.realigned_count;
    counts["laid_out"] = own.laid_out_count;
    result[bp_op_name(op)] = counts;
  }
  return result;
}

void add_graph(py::module_& m) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  m.def("is_program_device", is_program_device);
  py::class_<Graph>(m, "Graph")
      .def(py::init<>())
      .def("capture_begin", &Graph::begin, py::arg("program") = false, unlocked)
      .def("capture_end", &Graph::end, unlocked)
      .def("abandon", &Graph::abandon, unlocked)
      .def("replay", &Graph::replay, unlocked)
      .def("info", [](const Graph& graph) {
        const bp_captured_graph_info info = graph.info();
        py::dict result;
        result["node_count"] = info.node_count;
        result["pool_bytes"] = info.pool_bytes;
        result["kept_count"] = info.kept_count;
        return result;
      });
}

FallbackMode mode_of(const std::string& name) {
  if (name == "count") return FallbackMode::kCount;
  if (name == "warn") return FallbackMode::kWarn;
  if (name == "error") return FallbackMode::kError;
  throw py::value_error(
      "torch_backplane: the fallback is \"count\", \"warn\" or \"error\", not \"" + name + "\".");
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  register_table();
  register_event_times();
  register_kineto();
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  m.def("load", [](const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& options) {
    const py::gil_scoped_release released;
    return load(name, options);
  });
  m.def("close_all", &close_all, unlocked);
  m.def("device_count", [] { return static_cast<int>(device_count()); });
  m.def("is_open", &is_open);
  m.def("is_in_child", &is_in_child);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int i) { set_current_device(static_cast<c10::DeviceIndex>(i)); });
  m.def("properties", &properties);
  m.def("memory", &memory);
  m.def("statistics", &statistics);
  m.def(
      "memory_snapshot", [](int i) { return memory_snapshot(static_cast<c10::DeviceIndex>(i)); },
      unlocked);
  m.def(
      "empty_cache", [](int i) { empty_cache(static_cast<c10::DeviceIndex>(i)); }, unlocked);
  m.def("default_generator",
        [](int i) { return default_generator(static_cast<c10::DeviceIndex>(i)); });
  m.def("make_process_group", [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                 std::chrono::milliseconds timeout, const std::string& table) {
    return c10::intrusive_ptr<c10d::Backend>(
        c10::make_intrusive<ProcessGroup>(store, rank, size, timeout, table));
  });
  add_capsules(m);
  add_graph(m);
  m.def("set_fallback", [](const std::string& name) { set_fallback_mode(mode_of(name)); });
  m.def("fallbacks", &fallback_counts);
  m.def("reset_fallbacks", &reset_fallbacks);
  m.def("registered", &registered_names);
  m.def("unbound_rows", &unbound_rows);
  m.def("set_without_attention", &set_without_attention);  // For tests.
  m.def("abi_version", [] {
    uint32_t major = 0, minor = 0;
    check(bp_abi_version(&major, &minor), "abi_version");
    return std::pair(major, minor);
  });
}

}  // namespace bpt
