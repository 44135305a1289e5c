// Cases for api/include/backplane/layout.h: the blobs that stand for a layout in another process.
#include <nlohmann/json.hpp>

#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"
#include "conformance/cases/fixtures/offers.hpp"
#include "conformance/cases/fixtures/test_host.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/json_file.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

void blob_makes_an_equal_layout(Context& t) {
  const std::vector<LayoutSite> sites = layout_sites(t);
  t.expect(are_equal(t, nullptr, nullptr), "NULL equals NULL");
  for (const LayoutSite& site : sites) {
    const OwnedLayout made = layout_of_blob(t, blob_of(*site.layout));
    const std::string where = site_text(site) + ": ";
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
             site_text(a) + " differs from " + site_text(b));
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
    return run_in_child(t, "convert_by_blob", json_text(argument));
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
    damaged[i] = static_cast<unsigned char>(damaged[i] ^ 1u << i % 8);
    refused(damaged, "a blob with byte " + std::to_string(i) + " damaged");
  }
}

// ---- In the other process -------------------------------------------------------------------- //

void check_in_child(bp_status status, TestHost& host, const char* what) {
  if (status == BP_OK) return;
  child_fails(std::string("in the other process: ") + what + ": " + bp_status_name(status) + ": " +
                  host.take_text(),
              "LAYOUT-1");
}

// Returns the table of a kind among those that a backend registers. Ends the routine if it is
// missing.
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
  check_in_child(
      m.copy_to_host(m.self, stream, bytes.data(), &whole, BP_BORROW_DURING_CALL, UINT64_MAX), host,
      "copy_to_host");
  if (bytes != elements) {
    child_fails("another process reads other elements from a tensor in the layout", "LAYOUT-1");
  }
  check_in_child(tables.layouts.release(tables.layouts.self, layout), host, "release");
  for (bp_buffer* buffer : {laid, strided}) {
    check_in_child(m.deallocate(m.self, buffer, nullptr), host, "deallocate");
  }
}

void released_layouts_leave_nothing(Context& t) {
  const std::vector<LayoutSite> sites = layout_sites(t);
  const std::vector<uint8_t> blob = blob_of(*sites.front().layout);
  expect_nothing_left(t, "layouts", [&] { layout_of_blob(t, blob); });
}

}  // namespace

// Makes the layout from the blob of the task, and reads through it what the case has converted.
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
  check_in_child(backend.shutdown(backend.self, UINT64_MAX), host, "shutdown");
}

void add_layout_blob_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "layout",
      {
          {"blob_makes_an_equal_layout", {"LAYOUT-1"}, blob_makes_an_equal_layout},
          {"another_process_reads_what_was_converted",
           {"LAYOUT-1"},
           another_process_reads_what_was_converted},
          {"foreign_blobs_are_refused", {"LAYOUT-1", "ERROR-2"}, foreign_blobs_are_refused},
          {"released_layouts_leave_nothing", {"ENTRY-10"}, released_layouts_leave_nothing},
      });
}

}  // namespace bp::conformance
