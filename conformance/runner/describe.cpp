#include "conformance/runner/describe.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "conformance/json_file.hpp"
#include "conformance/runner/protocol.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

std::string text(const char* string) { return string == nullptr ? "" : string; }

std::string dtype_or_number(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name == nullptr ? "dtype " + std::to_string(dtype) : name;
}

struct Bit {
  uint32_t bit;
  const char* name;
};

template <size_t N>
json names_of(uint32_t bits, const Bit (&names)[N]) {
  json list = json::array();
  for (const Bit& row : names) {
    if ((bits & row.bit) != 0) list.push_back(row.name);
    bits &= ~row.bit;
  }
  if (bits != 0) list.push_back("unknown bits " + std::to_string(bits));
  return list;
}

constexpr Bit kHeapFlags[] = {
    {BP_HEAP_DEVICE_LOCAL, "device_local"},   {BP_HEAP_HOST_VISIBLE, "host_visible"},
    {BP_HEAP_HOST_COHERENT, "host_coherent"}, {BP_HEAP_HOST_CONCURRENT, "host_concurrent"},
    {BP_HEAP_MIGRATES, "migrates"},           {BP_HEAP_HOST_CACHED, "host_cached"}};
constexpr Bit kLayouts[] = {{BP_LAYOUT_CONTIGUOUS, "contiguous"},
                            {BP_LAYOUT_DENSE_PERMUTED, "dense_permuted"},
                            {BP_LAYOUT_BROADCAST, "broadcast"},
                            {BP_LAYOUT_INNER_DENSE, "inner_dense"},
                            {BP_LAYOUT_ANY, "any"}};
constexpr Bit kKernelFlags[] = {{BP_KERNEL_CAPTURABLE, "capturable"},
                                {BP_KERNEL_DETERMINISTIC, "deterministic"},
                                {BP_KERNEL_IN_PLACE, "in_place"},
                                {BP_KERNEL_TAKES_SCALAR, "takes_scalar"},
                                {BP_KERNEL_TAKES_ACC_OPERAND, "takes_acc_operand"}};
constexpr Bit kFlushes[] = {{BP_FLUSH_INPUTS, "inputs"}, {BP_FLUSH_OUTPUTS, "outputs"}};

template <size_t N>
std::string name_of(uint32_t value, const char* const (&names)[N]) {
  return value < N ? names[value] : "unknown " + std::to_string(value);
}

constexpr const char* kClasses[] = {"unknown 0", "host",        "integrated",
                                    "discrete",  "accelerator", "simulated"};
constexpr const char* kProducts[] = {"native", "tf32", "bf16", "bf16x3"};
constexpr const char* kRoundings[] = {"nearest_even", "faithful"};
constexpr const char* kOverflows[] = {"ieee", "saturate", "nan"};
constexpr const char* kMaths[] = {"strict", "relaxed"};
constexpr const char* kTies[] = {"first", "any"};

json describe_numerics(const bp_numerics* given) {
  const bp_numerics zero = {};
  const bp_numerics& n = given == nullptr ? zero : *given;
  return {{"accumulator", n.accumulator == 0 ? "default" : dtype_or_number(n.accumulator)},
          {"accumulator_bits", n.accumulator_bits},
          {"products", name_of(n.products, kProducts)},
          {"rounding", name_of(n.rounding, kRoundings)},
          {"flush", names_of(n.flush, kFlushes)},
          {"overflow", name_of(n.overflow, kOverflows)},
          {"math", name_of(n.math, kMaths)},
          {"tie", name_of(n.tie, kTies)}};
}

json describe_kernel(const bp_kernel& kernel) {
  json rows = json::array();
  for (uint32_t row = 0; kernel.dtype_rows != nullptr && row < kernel.dtype_row_count; ++row) {
    json columns = json::array();
    for (uint32_t column = 0; column < kernel.dtype_count; ++column) {
      columns.push_back(dtype_or_number(kernel.dtype_rows[row * kernel.dtype_count + column]));
    }
    rows.push_back(std::move(columns));
  }
  const char* op = bp_op_name(bp_kernel_op(&kernel));
  return {{"name", text(kernel.name)},
          {"op", op == nullptr ? "op " + std::to_string(kernel.op) : op},
          {"spec_revision", kernel.spec_revision},
          {"priority", kernel.priority},
          {"flags", names_of(kernel.flags, kKernelFlags)},
          {"dtype_rows", std::move(rows)},
          {"claims_every_dtype", kernel.dtype_rows == nullptr},
          {"layouts", names_of(kernel.layouts, kLayouts)},
          {"max_rank", kernel.max_rank},
          {"min_byte_alignment_bytes", kernel.min_byte_alignment_bytes},
          {"refuses_some", kernel.supports != nullptr},
          {"numerics", describe_numerics(kernel.numerics)}};
}

json describe_heap(const bp_heap& heap) {
  return {{"size_bytes", heap.size_bytes},
          {"max_allocation_bytes", heap.max_allocation_bytes},
          {"tensor_offset_alignment_bytes", heap.tensor_offset_alignment_bytes},
          {"suballocation_granularity_bytes", heap.suballocation_granularity_bytes},
          {"flags", names_of(heap.flags, kHeapFlags)}};
}

}  // namespace

json describe_plugin(const bp_plugin& plugin) {
  return {{"name", text(plugin.name)},
          {"version", text(plugin.version)},
          {"path", text(plugin.path)},
          {"refusals", text(plugin.refusals)},
          {"layers", text(plugin.layers)},
          {"abi", std::to_string(plugin.abi_major) + "." + std::to_string(plugin.abi_minor)},
          {"target_count", plugin.target_count},
          {"kernel_count", plugin.kernel_count}};
}

json describe_target(const bp_target& target) {
  const bp_device_properties& p = *target.properties;
  json heaps = json::array(), dtypes = json::array(), profiles = json::array();
  const auto* bytes = reinterpret_cast<const unsigned char*>(p.heaps);
  for (uint64_t i = 0; i < p.heap_count; ++i) {
    heaps.push_back(
        describe_heap(*reinterpret_cast<const bp_heap*>(bytes + i * p.heap_stride_bytes)));
  }
  for (uint64_t i = 0; i < p.dtype_count; ++i) dtypes.push_back(dtype_or_number(p.dtypes[i]));
  for (uint64_t i = 0; i < p.profile_count; ++i) profiles.push_back(text(p.profiles[i]));
  json kernels = json::array();
  for (uint64_t i = 0; i < bp_target_kernel_count(&target); ++i) {
    kernels.push_back(describe_kernel(*bp_target_kernel(&target, i)));
  }
  return {{"name", text(target.name)},
          {"device", text(p.name)},
          {"index", target.index},
          {"class", name_of(p.device_class, kClasses)},
          {"bus_id", text(p.bus_id)},
          {"compute_unit_count", p.compute_unit_count},
          {"subgroup_size", p.subgroup_size},
          {"max_rank", p.max_rank},
          {"peak_bytes_per_second", p.peak_bytes_per_second},
          {"peak_f32_flops", p.peak_f32_flops},
          {"heaps", std::move(heaps)},
          {"dtypes", std::move(dtypes)},
          {"profiles", std::move(profiles)},
          {"kernels", std::move(kernels)}};
}

json describe_manifests(bp_registry* registry) {
  json list = json::array();
  uint64_t count = 0;
  if (bp_registry_discover(registry, &count) != BP_OK) {
    list.push_back({{"name", ""}, {"file", ""}, {"library", ""}, {"problem", bp_error_text()}});
    return list;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    if (bp_registry_manifest(registry, i, &manifest) != BP_OK) continue;
    list.push_back({{"name", text(manifest->name)},
                    {"file", text(manifest->file)},
                    {"library", text(manifest->library)},
                    {"problem", text(manifest->problem)}});
  }
  return list;
}

namespace {

// "error" and "refusals" are texts of several lines.
void clean_texts(json& value, LineBreaks breaks) {
  if (value.is_string()) {
    value = clean_text(value.get_ref<const std::string&>(), breaks, kMaxRecordBytes);
  } else if (value.is_array()) {
    for (json& part : value) clean_texts(part, breaks);
  } else if (value.is_object()) {
    json clean = json::object();
    for (auto& [key, part] : value.items()) {
      const bool has_lines = key == "refusals" || key == "error";
      clean_texts(part, has_lines ? LineBreaks::kKeep : LineBreaks::kEscape);
      clean[clean_text(key, LineBreaks::kEscape)] = std::move(part);
    }
    value = std::move(clean);
  }
}

void check_texts(const JsonObject& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) static_cast<void>(object.text(key, ""));
}

void check_counts(const JsonObject& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) static_cast<void>(object.count(key, UINT64_MAX, 0));
}

std::string part_name(const JsonObject& object, const char* key, size_t index) {
  return object.name() + ": " + key + "[" + std::to_string(index) + "]";
}

void check_kernel(const JsonObject& kernel) {
  static_cast<void>(kernel.text("op"));
  check_texts(kernel, {"name"});
  check_counts(kernel, {"max_rank"});
  for (const char* key : {"flags", "layouts"}) static_cast<void>(kernel.list(key));
  for (const char* key : {"flags", "layouts"}) static_cast<void>(kernel.texts(key));
  if (!kernel.member("claims_every_dtype").is_boolean()) {
    kernel.refuse("claims_every_dtype", kind_text(kernel.member("claims_every_dtype")),
                  "true or false");
  }
  static_cast<void>(kernel.flag("refuses_some", false));
  for (const json& row : kernel.list("dtype_rows")) {
    static_cast<void>(JsonObject(json{{"row", row}}, kernel.name() + ": dtype_rows").texts("row"));
  }
  const JsonObject numerics = kernel.object("numerics");
  check_texts(numerics, {"accumulator", "products", "rounding", "overflow", "math", "tie"});
  check_counts(numerics, {"accumulator_bits"});
  static_cast<void>(numerics.list("flush"));
  static_cast<void>(numerics.texts("flush"));
}

void check_target(const JsonObject& target) {
  check_texts(target, {"name", "device", "class", "bus_id"});
  check_counts(target, {"index", "compute_unit_count", "subgroup_size", "max_rank"});
  for (const char* key : {"dtypes", "profiles"}) {
    static_cast<void>(target.list(key));
    static_cast<void>(target.texts(key));
  }
  size_t index = 0;
  for (const json& heap : target.list("heaps")) {
    const JsonObject object(heap, part_name(target, "heaps", index++));
    static_cast<void>(object.count("size_bytes", UINT64_MAX));
    check_counts(object, {"max_allocation_bytes", "tensor_offset_alignment_bytes"});
    static_cast<void>(object.list("flags"));
    static_cast<void>(object.texts("flags"));
  }
  index = 0;
  for (const json& kernel : target.list("kernels")) {
    check_kernel(JsonObject(kernel, part_name(target, "kernels", index++)));
  }
}

}  // namespace

void check_description(json& document, const std::string& name) {
  const JsonObject told(document, name);
  clean_texts(document, LineBreaks::kEscape);
  check_texts(told, {"suite", "host_abi", "sha256", "error", "output"});
  for (const char* key : {"log", "findings"}) static_cast<void>(told.texts(key));
  if (told.has("manifests")) {
    size_t index = 0;
    for (const json& manifest : told.list("manifests")) {
      check_texts(JsonObject(manifest, part_name(told, "manifests", index++)),
                  {"name", "file", "library", "problem"});
    }
  }
  if (told.has("plugin")) {
    check_texts(told.object("plugin"), {"name", "version", "path", "refusals", "layers", "abi"});
  }
  if (!told.has("targets")) return;
  size_t index = 0;
  for (const json& target : told.list("targets")) {
    check_target(JsonObject(target, part_name(told, "targets", index++)));
  }
  if (told.count("target", UINT64_MAX) >= index) {
    told.refuse("target", json_text(told.member("target")),
                "the number of a device of \"targets\"");
  }
}

}  // namespace bp::conformance
