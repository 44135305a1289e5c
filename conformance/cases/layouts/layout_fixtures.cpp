#include "conformance/cases/layouts/layout_fixtures.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kShapesPerDtype = 12;
constexpr int64_t kNoStride = 0x5555;

// Returns tiny and empty shapes, and shapes with tails at the edges of blocks.
const std::vector<Shape>& odd_shapes() {
  static const std::vector<Shape> shapes = {{},       {0},     {1},       {17},
                                            {16, 16}, {1, 33}, {3, 0, 5}, {2, 17, 31}};
  return shapes;
}

// Returns calls that differ in the properties that decide about layouts: op, dtypes, ranks and
// shapes.
OpCases make_calls() {
  OpCases calls;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const Group& group : groups_of(rows)) {
      for (const OpCase* row : rows_by_rank(group, 4)) calls.push_back(*row);
      const OpCase* const base = widest(group);
      if (base == nullptr || base->derive) continue;
      const Shape& shape = base->tensors.front().shape;
      if (!std::ranges::all_of(base->tensors, [&](const auto& a) { return a.shape == shape; })) {
        continue;
      }
      for (const Shape& odd : odd_shapes()) {
        OpCase row = *base;
        for (TensorArgument& argument : row.tensors) argument.shape = odd;
        if (HostCall(row).is_legal()) calls.push_back(std::move(row));
      }
    }
  }
  return calls;
}

const OpCases& calls_of_suite() {
  static const OpCases calls = make_calls();
  return calls;
}

std::vector<int64_t> no_strides(size_t rank) { return std::vector<int64_t>(rank, kNoStride); }

MemoryPlace aligned(MemoryPlace place, uint64_t alignment_bytes) {
  const uint64_t alignment = std::max<uint64_t>(alignment_bytes, 1);
  place.canary_bytes = (place.canary_bytes + alignment - 1) / alignment * alignment;
  return place;
}

// Adds the layouts that the kernel of one call prefers.
void add_sites(Context& t, const OpCase& row, std::set<std::pair<bp_dtype, Shape>>& seen,
               std::map<bp_dtype, size_t>& counts, std::vector<LayoutSite>& sites) {
  const auto is_known = [&](const TensorArgument& argument) {
    return op_info(row.op).member(argument.name).is_list() ||
           seen.contains({argument.dtype, argument.shape}) ||
           counts[argument.dtype] == kShapesPerDtype;
  };
  if (std::ranges::all_of(row.tensors, is_known)) return;  // Most calls of a suite end here.
  HostCall call(row);
  for (size_t i = 0; i < row.tensors.size(); ++i) call.tensor(i).buffer = nullptr;
  bp_kernel_choice choice{};
  const bp_status found =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, row.op, call.frame().data(), &choice);
  bp_error_clear();
  if (found != BP_OK) return;
  const std::vector<uint64_t> words = call.frame().fitted(choice.kernel->args_size_bytes);
  for (const TensorArgument& argument : row.tensors) {
    if (is_known(argument)) continue;
    OwnedLayout layout =
        preferred_layout(t, *choice.kernel, tensor_argument(row.op, argument.name), words.data());
    if (layout == nullptr) continue;
    seen.insert({argument.dtype, argument.shape});
    ++counts[argument.dtype];
    sites.push_back({row.id() + ", argument " + std::string(argument.name), argument.dtype,
                     argument.shape, std::move(layout)});
  }
}

}  // namespace

const bp_layout_ops& layout_table(Context& t) {
  if (bp_target_has_table(&t.target(), BP_STRUCT_LAYOUT_OPS) == 0) {
    t.not_supported("the device has no table of layouts");
  }
  return *t.target().layouts;
}

OwnedLayout preferred_layout(Context& t, const bp_kernel& kernel, uint32_t argument,
                             const void* args) {
  const bp_layout_ops& layouts = layout_table(t);
  const bp_layout* layout = t.sentinel<bp_layout>();
  t.require_ok(layouts.preferred(layouts.self, t.target().device, &kernel, argument, args, &layout),
               "layout.preferred");
  t.require(layout != t.sentinel<bp_layout>(), "layout.preferred sets *out_layout");
  return OwnedLayout(layout, {&layouts});
}

uint32_t tensor_argument(uint32_t op, std::string_view member) {
  uint32_t number = 0;
  for (const FrameMember& each : op_info(op).members) {
    if (each.name == member) return number;
    const bool is_tensor = each.dtype != "none" && each.kind != "i64_list";
    if (is_tensor) ++number;
  }
  throw std::logic_error("the op has no tensor argument '" + std::string(member) + "'");
}

std::vector<uint8_t> blob_of(const bp_layout& layout) {
  const auto* const bytes = static_cast<const uint8_t*>(layout.blob);
  return {bytes, bytes + layout.blob_size_bytes};
}

OwnedLayout layout_of_blob(Context& t, const std::vector<uint8_t>& blob) {
  const bp_layout_ops& layouts = layout_table(t);
  const bp_layout* layout = nullptr;
  t.require_ok(
      layouts.from_blob(layouts.self, t.target().device, blob.data(), blob.size(), &layout),
      "layout.from_blob");
  t.require(layout != nullptr, "layout.from_blob sets *out_layout");
  return OwnedLayout(layout, {&layouts});
}

bool are_equal(Context& t, const bp_layout* a, const bp_layout* b) {
  const bp_layout_ops& layouts = layout_table(t);
  uint32_t is_equal = 7;
  t.require_ok(layouts.equal(layouts.self, a, b, &is_equal), "layout.equal");
  t.require(is_equal <= 1, "layout.equal gives 0 or 1");
  return is_equal == 1;
}

std::vector<LayoutSite> layout_sites(Context& t) {
  layout_table(t);
  std::set<std::pair<bp_dtype, Shape>> seen;
  std::map<bp_dtype, size_t> counts;
  std::vector<LayoutSite> sites;
  for (const OpCase& row : calls_of_suite()) {
    if (is_listed(t, row)) add_sites(t, row, seen, counts, sites);
  }
  if (sites.empty()) t.not_supported("no kernel prefers a layout for any call of the suite");
  t.metric("layouts", static_cast<double>(sites.size()));
  return sites;
}

std::string site_text(const LayoutSite& site) {
  return std::string(site.layout->name == nullptr ? "?" : site.layout->name) + " of " +
         dtype_text(site.dtype) + " " + shape_text(site.shape) + " (" + site.where + ")";
}

// Returns values that every dtype holds exactly, so that elements can be compared by their bits.
std::vector<DoubleDouble> values_of(Context& t, bp_dtype dtype, const Shape& shape) {
  const auto count = static_cast<size_t>(element_count(shape));
  const std::vector<uint8_t> bytes = random_bytes(t, count, count + dtype);
  std::vector<DoubleDouble> values;
  for (const uint8_t byte : bytes) values.emplace_back(dtype == BP_BOOL ? byte % 2 : byte % 100);
  return values;
}

GuardedTensor make_strided(Context& t, bp_stream* stream, const LayoutSite& site, Layout layout) {
  GuardedSpec spec{site.dtype, site.shape, place(layout, site.shape)};
  if (layout == Layout::kOffset) spec.small_offset_bytes = element_size(site.dtype);
  return GuardedTensor(memory_place(t, stream), std::move(spec));
}

LaidTensor::LaidTensor(const MemoryPlace& place_in, const bp_layout& layout, bp_dtype dtype,
                       Shape shape)
    : shape_(std::move(shape)),
      strides_(no_strides(shape_.size())),
      memory_(aligned(place_in, layout.alignment_bytes),
              {BP_U8,
               {static_cast<int64_t>(layout.physical_size_bytes)},
               place(Layout::kDense, {static_cast<int64_t>(layout.physical_size_bytes)})}) {
  view_.buffer = memory_.ref().buffer;
  view_.byte_offset = memory_.ref().byte_offset;
  view_.shape = shape_.data();
  view_.strides = strides_.data();
  view_.ndim = static_cast<uint32_t>(shape_.size());
  view_.dtype = dtype;
  view_.layout = &layout;
}

void LaidTensor::poison(Poison poison) {
  memory_.poison_elements(poison);
  memory_.upload();
}

std::string LaidTensor::damage(std::string_view name) {
  memory_.download();
  const auto damage = memory_.damage();
  return damage ? damage_text(name, *damage) : "";
}

bool LaidTensor::is_unchanged() {
  memory_.download();
  const auto size = static_cast<int64_t>(memory_.ref().size_bytes);
  for (int64_t i = 0; i < size; ++i) {
    if (!memory_.is_unchanged(i)) return false;
  }
  return !memory_.damage();
}

void convert(Context& t, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src) {
  const bp_layout_ops& layouts = layout_table(t);
  t.require_ok(layouts.convert(layouts.self, stream, dst, src), "layout.convert");
}

}  // namespace bp::conformance
