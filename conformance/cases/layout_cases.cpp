// Cases for api/include/backplane/layout.h: blobs, references, conversions, and what is refused.
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "backplane/ops.h"
#include "conformance/cases/child_routines.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/layout_fixtures.hpp"
#include "conformance/cases/offers.hpp"
#include "conformance/cases/op_call.hpp"
#include "conformance/cases/test_host.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// ---- Tensors on both sides of a conversion ------------------------------------------------------

// Values that every dtype holds exactly, so that elements compare by their bits.
std::vector<DoubleDouble> values_of(Context& t, bp_dtype dtype, const Shape& shape) {
  const auto count = static_cast<size_t>(element_count(shape));
  const std::vector<uint8_t> bytes = random_bytes(t, count, count + dtype);
  std::vector<DoubleDouble> values;
  for (const uint8_t byte : bytes) values.emplace_back(dtype == BP_BOOL ? byte % 2 : byte % 100);
  return values;
}

GuardedTensor make_strided(Context& t, bp_stream* stream, const LayoutSite& site, Layout layout) {
  GuardedSpec spec{site.dtype, site.shape, place(layout, site.shape)};
  if (layout == kOffset) spec.small_offset_bytes = element_size(site.dtype);
  return GuardedTensor(memory_place(t, stream), std::move(spec));
}

// A layout of strides that a tensor of this rank can have.
Layout possible(Layout layout, const Shape& shape) {
  if (shape.empty()) return layout == kOffset ? kOffset : kDense;
  if (shape.size() > 1) return layout;
  return layout == kTransposed || layout == kPermuted || layout == kSliced ? kStepped : layout;
}

std::string text_of(const LayoutSite& site) {
  return std::string(site.layout->name == nullptr ? "?" : site.layout->name) + " of " +
         dtype_text(site.dtype) + " " + shape_text(site.shape) + " (" + site.where + ")";
}

// Converts from `from` to the layout and on to `to`, with work of both directions in one queue.
void there_and_back(Context& t, bp_stream* stream, const LayoutSite& site, Layout from, Layout to) {
  const std::string where =
      text_of(site) + ", from " + layout_text(from) + " to " + layout_text(to) + ": ";
  GuardedTensor src = make_strided(t, stream, site, from), dst = make_strided(t, stream, site, to);
  const MemoryPlace place_in = memory_place(t, stream);
  LaidTensor first(place_in, *site.layout, site.dtype, site.shape),
      second(place_in, *site.layout, site.dtype, site.shape);
  src.set_elements(values_of(t, site.dtype, site.shape));
  src.upload();
  dst.poison_elements(Poison::kOnes);
  dst.upload();
  first.poison(Poison::kNan);
  second.poison(Poison::kOnes);
  convert(t, stream, first.view(), src.view());
  convert(t, stream, second.view(), first.view());
  convert(t, stream, dst.view(), second.view());
  finish(t, stream);
  src.download();
  dst.download();
  for (const std::string& damage : {first.damage("dst in the layout"), second.damage("dst")}) {
    if (!damage.empty()) t.fail({where + damage, "canary", "LAYOUT-4"});
  }
  if (const auto damage = dst.damage()) {
    t.fail({where + damage_text("dst by strides", *damage), "canary", "LAYOUT-4"});
  }
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    if (src.element_word(i) == dst.element_word(i)) continue;
    t.fail({where + "element " + std::to_string(i) + " has the bits " +
                std::to_string(dst.element_word(i)) + ", and had " +
                std::to_string(src.element_word(i)),
            "values", "LAYOUT-4"});
  }
}

void conversions_keep_every_element(Context& t) {
  constexpr Layout kFrom[] = {kDense,   kTransposed,    kOffset,   kBroadcastFirst,
                              kStepped, kBroadcastLast, kReversed, kPermuted,
                              kSliced,  kBroadcastAll,  kNegative};
  constexpr Layout kTo[] = {kStepped, kDense, kTransposed, kReversed, kOffset, kSliced, kNegative};
  const OwnedStream stream = make_stream(t);
  size_t turn = 0;
  for (const LayoutSite& site : layout_sites(t)) {
    t.progress("convert " + site.where);
    for (int i = 0; i < 3; ++i, ++turn) {
      there_and_back(t, stream.get(), site, possible(kFrom[turn % std::size(kFrom)], site.shape),
                     possible(kTo[turn % std::size(kTo)], site.shape));
    }
  }
}

// ---- Blobs ----------------------------------------------------------------------------------- //

void blob_makes_an_equal_layout(Context& t) {
  const std::vector<LayoutSite> sites = layout_sites(t);
  t.expect(are_equal(t, nullptr, nullptr), "NULL equals NULL");
  for (const LayoutSite& site : sites) {
    const OwnedLayout made = layout_of_blob(t, blob_of(*site.layout));
    const std::string where = text_of(site) + ": ";
    t.expect(are_equal(t, made.get(), site.layout.get()), where + "the layout of its blob");
    t.expect(!are_equal(t, made.get(), nullptr), where + "it differs from strides");
    t.expect(!are_equal(t, nullptr, made.get()), where + "strides differ from it");
    t.expect_eq(made->physical_size_bytes, site.layout->physical_size_bytes,
                where + "physical_size_bytes");
    t.expect_eq(made->alignment_bytes, site.layout->alignment_bytes, where + "alignment_bytes");
    t.expect_eq(made->kind, site.layout->kind, where + "kind");
    t.expect_eq(made->dtype, site.dtype, where + "dtype");
    const uint64_t alignment = made->alignment_bytes;
    t.expect(alignment != 0 && (alignment & (alignment - 1)) == 0,
             where + "alignment_bytes is a power of two");
  }
  for (size_t i = 1; i < sites.size(); ++i) {
    const LayoutSite &a = sites[i - 1], &b = sites[i];
    if (a.dtype == b.dtype && a.shape == b.shape) continue;
    t.expect(!are_equal(t, a.layout.get(), b.layout.get()),
             text_of(a) + " differs from " + text_of(b));
  }
}

void another_process_reads_what_was_converted(Context& t) {
  const OwnedStream stream = make_stream(t);
  for (const LayoutSite& site : layout_sites(t)) {
    if (element_count(site.shape) < 100) continue;
    GuardedTensor src = make_strided(t, stream.get(), site, kDense);
    LaidTensor laid(memory_place(t, stream.get()), *site.layout, site.dtype, site.shape);
    src.set_elements(values_of(t, site.dtype, site.shape));
    src.upload();
    laid.poison(Poison::kNan);
    convert(t, stream.get(), laid.view(), src.view());
    const nlohmann::json argument{{"blob", blob_of(*site.layout)},
                                  {"dtype", site.dtype},
                                  {"shape", site.shape},
                                  {"laid", read(t, stream.get(), laid.ref())},
                                  {"elements", read(t, stream.get(), src.ref())},
                                  {"alignment_bytes", site.layout->alignment_bytes},
                                  {"physical_size_bytes", site.layout->physical_size_bytes}};
    return run_in_child(t, "convert_by_blob", argument.dump());
  }
  t.not_supported("no kernel prefers a layout for a tensor of 100 elements");
}

void foreign_blobs_are_refused(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  const std::vector<uint8_t> blob = blob_of(*layout_sites(t).front().layout);
  t.require(!blob.empty(), "a layout has a blob");
  const bp_layout* out = t.sentinel<bp_layout>();
  const auto give = [&](const void* bytes, uint64_t size) {
    return layouts.from_blob(layouts.self, t.target().device, bytes, size, &out);
  };
  const auto refused = [&](const std::vector<uint8_t>& bytes, const std::string& what) {
    t.expect_refused(give(bytes.data(), bytes.size()), BP_INCOMPATIBLE, what);
    t.expect(out == t.sentinel<bp_layout>(), what + ": out_layout is left alone");
  };
  t.expect_refused(give(nullptr, blob.size()), BP_INVALID_ARGUMENT, "a blob that is NULL");
  t.expect_refused(
      layouts.from_blob(layouts.self, t.target().device, blob.data(), blob.size(), nullptr),
      BP_INVALID_ARGUMENT, "an out_layout that is NULL");
  refused(random_bytes(t, blob.size()), "a blob of random bytes");
  refused(std::vector<uint8_t>(blob.size(), 0), "a blob of zeros");
  for (const size_t size : {size_t{1}, blob.size() / 2, blob.size() - 1}) {
    refused({blob.begin(), blob.begin() + static_cast<int64_t>(size)},
            "a blob cut to " + std::to_string(size) + " bytes");
  }
  std::vector<uint8_t> longer = blob;
  longer.resize(blob.size() + 8);
  refused(longer, "a blob with 8 bytes more");
  for (size_t i = 0; i < blob.size(); ++i) {
    std::vector<uint8_t> damaged = blob;
    damaged[i] ^= 1u << i % 8;
    refused(damaged, "a blob with byte " + std::to_string(i) + " damaged");
  }
}

// ---- References ------------------------------------------------------------------------------ //

void references_are_counted(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  const std::vector<uint8_t> blob = blob_of(*layout_sites(t).front().layout);
  const OwnedLayout first = layout_of_blob(t, blob);
  const bp_layout* const layout = first.get();
  for (int i = 0; i < 3; ++i) {
    t.expect_eq(layouts.retain(layouts.self, layout), bp_status{BP_OK}, "retain");
  }
  const OwnedLayout second = layout_of_blob(t, blob);
  for (int i = 0; i < 3; ++i) {
    t.expect_eq(layouts.release(layouts.self, layout), bp_status{BP_OK}, "release");
    t.expect(are_equal(t, layout, second.get()), "the layout after a release of several");
  }
  t.expect_eq(layouts.release(layouts.self, nullptr), bp_status{BP_OK}, "release of NULL");
  t.expect_refused(layouts.retain(layouts.self, nullptr), BP_INVALID_ARGUMENT, "retain of NULL");
  t.expect_refused(layouts.equal(layouts.self, layout, layout, nullptr), BP_INVALID_ARGUMENT,
                   "equal with an out_equal that is NULL");
}

// Both conversions wait behind the gate when the last reference ends.
void work_outlives_its_layout(Context& t) {
  const OwnedStream stream = make_stream(t);
  std::vector<LayoutSite> sites = layout_sites(t);
  const auto largest = std::ranges::max_element(
      sites, {}, [](const LayoutSite& site) { return element_count(site.shape); });
  LayoutSite site = std::move(*largest);
  sites.clear();
  GuardedTensor src = make_strided(t, stream.get(), site, kDense),
                dst = make_strided(t, stream.get(), site, kDense);
  LaidTensor laid(memory_place(t, stream.get()), *site.layout, site.dtype, site.shape);
  src.set_elements(values_of(t, site.dtype, site.shape));
  src.upload();
  dst.poison_elements(Poison::kOnes);
  dst.upload();
  laid.poison(Poison::kNan);
  Gate gate(t);
  gate.hold(stream.get());
  convert(t, stream.get(), laid.view(), src.view());
  convert(t, stream.get(), dst.view(), laid.view());
  site.layout.reset();
  gate.open();
  finish(t, stream.get());
  src.download();
  dst.download();
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    if (src.element_word(i) == dst.element_word(i)) continue;
    t.fail({"the layout was released before the work ran, and element " + std::to_string(i) +
                " is wrong",
            "values", "LAYOUT-3"});
  }
}

// ---- What is refused ------------------------------------------------------------------------- //

// A tensor of rank 2 or more, so that shapes can be changed.
const LayoutSite& changeable(Context& t, const std::vector<LayoutSite>& sites) {
  for (const LayoutSite& site : sites) {
    const bool is_matrix = site.shape.size() >= 2 && site.shape[0] > 1;
    if (is_matrix && element_count(site.shape) > 1) return site;
  }
  t.not_supported("no kernel prefers a layout for a matrix");
}

struct Sides {
  bp_tensor dst, src;
};
using Change = std::function<void(Sides&)>;

void expect_each_refused(Context& t, bp_stream* stream, const bp_tensor& laid,
                         const bp_tensor& strided, const std::map<std::string, Change>& changes) {
  const bp_layout_ops& layouts = layout_table(t);
  for (const auto& [what, change] : changes) {
    for (const bool is_back : {false, true}) {
      Sides sides{laid, strided};
      change(sides);
      const bp_tensor *dst = is_back ? &sides.src : &sides.dst,
                      *src = is_back ? &sides.dst : &sides.src;
      t.expect_refused(layouts.convert(layouts.self, stream, dst, src), BP_INVALID_ARGUMENT,
                       what + (is_back ? ", from the layout" : ", to the layout"));
    }
  }
}

void conversions_that_do_not_fit_are_refused(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  const OwnedStream stream = make_stream(t);
  const std::vector<LayoutSite> sites = layout_sites(t);
  const LayoutSite& site = changeable(t, sites);
  GuardedTensor strided = make_strided(t, stream.get(), site, kDense);
  LaidTensor laid(memory_place(t, stream.get()), *site.layout, site.dtype, site.shape);
  strided.poison_elements(Poison::kNoise);
  strided.upload();
  laid.poison(Poison::kNan);
  Shape other = site.shape;
  other[0] -= 1;
  const std::vector<int64_t> no_strides(site.shape.size(), 0);
  const bp_dtype other_dtype = site.dtype == BP_F32 ? BP_I32 : BP_F32;
  const uint64_t far = uint64_t{1} << 40;
  expect_each_refused(
      t, stream.get(), *laid.view(), *strided.view(),
      {{"another shape by strides", [&](Sides& s) { s.src.shape = other.data(); }},
       {"another shape in the layout", [&](Sides& s) { s.dst.shape = other.data(); }},
       {"both of a shape that the layout is not for",
        [&](Sides& s) { s.dst.shape = s.src.shape = other.data(); }},
       {"another rank", [](Sides& s) { --s.src.ndim; }},
       {"another dtype", [&](Sides& s) { s.src.dtype = other_dtype; }},
       {"both of a dtype that the layout is not for",
        [&](Sides& s) { s.dst.dtype = s.src.dtype = other_dtype; }},
       {"no buffer by strides", [](Sides& s) { s.src.buffer = nullptr; }},
       {"no buffer in the layout", [](Sides& s) { s.dst.buffer = nullptr; }},
       {"bytes behind the buffer by strides", [&](Sides& s) { s.src.byte_offset += far; }},
       {"bytes behind the buffer in the layout", [&](Sides& s) { s.dst.byte_offset += far; }}});
  bp_tensor one_place = *strided.view();
  one_place.strides = no_strides.data();
  t.expect_refused(layouts.convert(layouts.self, stream.get(), &one_place, laid.view()),
                   BP_INVALID_ARGUMENT, "a dst whose elements share one place");
  if (site.layout->alignment_bytes > 1) {
    bp_tensor askew = *laid.view();
    askew.byte_offset += 1;
    t.expect_refused(layouts.convert(layouts.self, stream.get(), &askew, strided.view()),
                     BP_INVALID_ARGUMENT, "a byte_offset that the layout's alignment forbids");
  }
  t.expect_refused(layouts.convert(layouts.self, stream.get(), nullptr, strided.view()),
                   BP_INVALID_ARGUMENT, "a dst that is NULL");
  t.expect_refused(layouts.convert(layouts.self, stream.get(), laid.view(), nullptr),
                   BP_INVALID_ARGUMENT, "a src that is NULL");
  t.expect_refused(layouts.convert(layouts.self, nullptr, laid.view(), strided.view()),
                   BP_INVALID_ARGUMENT, "a stream that is NULL");
  finish(t, stream.get());
  strided.download();
  bool is_unchanged = !strided.damage();
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    is_unchanged = is_unchanged && strided.is_unchanged(i);
  }
  t.expect(is_unchanged && laid.is_unchanged(), "memory after conversions that were refused");
}

// The layout of one shape, given to a call of another.
void launches_in_other_layouts_are_refused(Context& t) {
  const std::vector<LayoutSite> sites = layout_sites(t);
  const OwnedStream stream = make_stream(t);
  constexpr int64_t kStride[1] = {1};
  constexpr int64_t kLength[1] = {4};
  const OwnedBuffer buffer = make_buffer(t, 4096);
  const bp_tensor plain{
      .buffer = buffer.get(), .shape = kLength, .strides = kStride, .ndim = 1, .dtype = BP_F32};
  size_t count = 0;
  for (const LayoutSite& site : sites) {
    if (site.shape == Shape{4}) continue;
    bp_tensor laid = plain;
    laid.layout = site.layout.get();
    bp_neg_args args{};
    args.struct_size = sizeof(args);
    args.x = &laid;
    bp_tensor y = plain;
    y.byte_offset = 2048;
    args.y = &y;
    t.expect_refused(bp_op_launch(&t.target(), stream.get(), 0, BP_OP_NEG, &args), BP_UNSUPPORTED,
                     "neg of 4 elements with the layout of " + text_of(site));
    ++count;
  }
  t.require(count != 0, "a layout for another shape");
}

// ---- In the other process -------------------------------------------------------------------- //

void check_in_child(bp_status status, TestHost& host, const char* what) {
  if (status == BP_OK) return;
  child_fails(std::string("in the other process: ") + what + ": " + bp_status_name(status) + ": " +
                  host.take_text(),
              "LAYOUT-1");
}

// The table of a kind, among what a backend registers; ends the routine where it is missing.
template <typename Table>
const Table& table_in_child(const Offers& offers, uint32_t struct_type) {
  for (const bp_struct_header* offer : offers.tables) {
    if (offer->struct_type == struct_type) return *reinterpret_cast<const Table*>(offer);
  }
  child_fails("in the other process the backend registers no table of type " +
              std::to_string(struct_type));
}

struct ChildTables {
  const bp_device_ops& devices;
  const bp_allocator_ops& memory;
  const bp_stream_ops& streams;
  const bp_layout_ops& layouts;
};

bp_buffer* buffer_in_child(const ChildTables& tables, TestHost& host, bp_device* device,
                           bp_stream* stream, const std::vector<uint8_t>& bytes) {
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = bytes.size()};
  bp_buffer* buffer = nullptr;
  const bp_allocator_ops& m = tables.memory;
  check_in_child(m.allocate(m.self, device, &desc, &buffer), host, "allocate");
  const bp_buffer_ref whole{buffer, 0, bytes.size()};
  check_in_child(m.copy_from_host(m.self, stream, &whole, bytes.data(), BP_BORROW_DURING_CALL),
                 host, "copy_from_host");
  return buffer;
}

void convert_in_child(const ChildTables& tables, TestHost& host, bp_device* device,
                      const nlohmann::json& argument) {
  const auto blob = argument.at("blob").get<std::vector<uint8_t>>();
  const auto shape = argument.at("shape").get<Shape>();
  const auto elements = argument.at("elements").get<std::vector<uint8_t>>();
  bp_stream* stream = nullptr;
  const bp_layout* layout = nullptr;
  check_in_child(tables.streams.default_stream(tables.streams.self, device, &stream), host,
                 "default_stream");
  check_in_child(
      tables.layouts.from_blob(tables.layouts.self, device, blob.data(), blob.size(), &layout),
      host, "from_blob");
  if (layout->physical_size_bytes != argument.at("physical_size_bytes").get<uint64_t>() ||
      layout->alignment_bytes != argument.at("alignment_bytes").get<uint64_t>() ||
      blob_of(*layout) != blob) {
    child_fails("the layout of a blob is another one in another process", "LAYOUT-1");
  }
  bp_buffer* const laid = buffer_in_child(tables, host, device, stream,
                                          argument.at("laid").get<std::vector<uint8_t>>());
  bp_buffer* const strided =
      buffer_in_child(tables, host, device, stream, std::vector<uint8_t>(elements.size(), 0xDD));
  const Placement dense = place(kDense, shape);
  bp_tensor src{.buffer = laid,
                .shape = shape.data(),
                .strides = dense.strides.data(),
                .ndim = static_cast<uint32_t>(shape.size()),
                .dtype = argument.at("dtype").get<bp_dtype>()};
  bp_tensor dst = src;
  src.layout = layout;
  dst.buffer = strided;
  check_in_child(tables.layouts.convert(tables.layouts.self, stream, &dst, &src), host, "convert");
  std::vector<uint8_t> bytes(elements.size());
  const bp_buffer_ref whole{strided, 0, bytes.size()};
  const bp_allocator_ops& m = tables.memory;
  check_in_child(m.copy_to_host(m.self, stream, bytes.data(), &whole, BP_BORROW_DURING_CALL), host,
                 "copy_to_host");
  if (bytes != elements) {
    child_fails("another process reads other elements from a tensor in the layout", "LAYOUT-1");
  }
  check_in_child(tables.layouts.release(tables.layouts.self, layout), host, "release");
  for (bp_buffer* buffer : {laid, strided}) {
    check_in_child(m.free(m.self, buffer, nullptr), host, "free");
  }
}

}  // namespace

// Makes the layout of the blob in the task, and reads with it what the case has converted.
void convert_by_blob(const ChildTask& task) {
  TestHost host(task.option_list());
  const PluginEntry entry(task.plugin);
  if (entry.get() == nullptr) child_fails("in the other process: the plugin does not open");
  const bp_entry_request request = entry_request(host);
  bp_entry_reply reply = blank_reply();
  check_in_child(entry.get()(&request, &reply), host, "the entry");
  Offers offers;
  const bp_registrar registrar = recording_registrar(offers);
  const bp_backend& backend = *reply.backend;
  check_in_child(backend.register_all(backend.self, &registrar), host, "register_all");
  const ChildTables tables{table_in_child<bp_device_ops>(offers, BP_STRUCT_DEVICE_OPS),
                           table_in_child<bp_allocator_ops>(offers, BP_STRUCT_ALLOCATOR_OPS),
                           table_in_child<bp_stream_ops>(offers, BP_STRUCT_STREAM_OPS),
                           table_in_child<bp_layout_ops>(offers, BP_STRUCT_LAYOUT_OPS)};
  uint64_t count = 0;
  std::vector<bp_device*> devices(task.device + 1);
  check_in_child(
      tables.devices.enumerate(tables.devices.self, devices.size(), devices.data(), &count), host,
      "enumerate");
  if (count <= task.device) child_fails("in the other process there is no such device");
  convert_in_child(tables, host, devices[task.device], nlohmann::json::parse(task.argument));
  check_in_child(backend.shutdown(backend.self), host, "shutdown");
}

void add_layout_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "layout",
      {
          {"conversions_keep_every_element", {"LAYOUT-4"}, conversions_keep_every_element},
          {"blob_makes_an_equal_layout", {"LAYOUT-1"}, blob_makes_an_equal_layout},
          {"another_process_reads_what_was_converted",
           {"LAYOUT-1"},
           another_process_reads_what_was_converted},
          {"foreign_blobs_are_refused", {"LAYOUT-1", "ERROR-2"}, foreign_blobs_are_refused},
          {"references_are_counted", {"LAYOUT-3"}, references_are_counted},
          {"work_outlives_its_layout", {"LAYOUT-3"}, work_outlives_its_layout},
          {"conversions_that_do_not_fit_are_refused",
           {"LAYOUT-4", "ERROR-1"},
           conversions_that_do_not_fit_are_refused},
          {"launches_in_other_layouts_are_refused",
           {"LAYOUT-2"},
           launches_in_other_layouts_are_refused},
      });
}

}  // namespace bp::conformance
