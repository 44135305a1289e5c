// Cases for the memory that processes share, in api/include/backplane/memory.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/external_handle.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"
#include "conformance/cases/fixtures/test_host.hpp"
#include "conformance/json_file.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 5000;  // The size is no multiple of a page.

OwnedBuffer make_exportable(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = kSize,
                              .usage = BP_MEMORY_EXPORT};
  bp_buffer* buffer = nullptr;
  require_offered(t, m.allocate(m.self, t.target().device, &desc, &buffer),
                  "allocate with BP_MEMORY_EXPORT");
  return OwnedBuffer(buffer, {&m});
}

// Exports the buffer by the first type that the backend has.
Exported export_of(Context& t, bp_buffer* buffer) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_status status = BP_OK;
  for (const bp_external_type type : kExternalTypes) {
    bp_external_handle handle = blank_handle();
    status = m.export_buffer(m.self, buffer, type, &handle);
    if (status == BP_UNSUPPORTED) continue;
    t.require_ok(status, "memory.export_buffer");
    t.expect_eq(handle.type, type, "type of the handle");
    t.expect_eq(handle.size_bytes, kSize, "size_bytes of the handle");
    t.expect(has_descriptor(type) ? handle.fd >= 0 : handle.fd == -1, "fd of the handle");
    t.expect((handle.byte_count != 0) == (handle.bytes != nullptr), "bytes of the handle");
    return Exported(handle);
  }
  t.fail("allocate takes BP_MEMORY_EXPORT, and no type can be exported: " +
         std::string(bp_error_text()));
}

OwnedBuffer import(Context& t, const bp_external_handle& handle) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_buffer* buffer = nullptr;
  t.require_ok(m.import_buffer(m.self, t.target().device, &handle, &buffer),
               "memory.import_buffer");
  return OwnedBuffer(buffer, {&m});
}

bp_buffer_flags flags_of(Context& t, const OwnedBuffer& buffer) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  t.require_ok(m.buffer_info(m.self, buffer.get(), &info), "memory.buffer_info");
  return info.flags & (BP_BUFFER_ALIASES | BP_BUFFER_COPIES);
}

// An import that copies is another buffer with the same bytes, from then on.
void expect_copy(Context& t, const OwnedStream& stream, const OwnedBuffer& copy,
                 const OwnedBuffer& source, const std::vector<uint8_t>& bytes) {
  t.expect(read(t, stream.get(), range(copy, 0, kSize)) == bytes, "the bytes of the copy");
  write(t, stream.get(), range(copy, 0, kSize), std::vector<uint8_t>(kSize, 1));
  t.expect(read(t, stream.get(), range(source, 0, kSize)) == bytes,
           "the exported bytes when the copy was overwritten");
}

void both_buffers_show_the_same_bytes(Context& t) {
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer first = make_exportable(t);
  std::vector<uint8_t> bytes = random_bytes(t, kSize, 2);
  write(t, stream.get(), range(first, 0, kSize), bytes);
  const Exported exported = export_of(t, first.get());
  const OwnedBuffer second = import(t, exported.handle);
  if (flags_of(t, second) == BP_BUFFER_COPIES) return expect_copy(t, stream, second, first, bytes);
  bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(first, 0, kSize), bytes);
  t.expect(read(t, stream.get(), range(second, 0, kSize)) == bytes,
           "the bytes that the exporter wrote");
  const std::vector<uint8_t> part = random_bytes(t, 1000, 1);
  write(t, stream.get(), range(second, 3999, 1000), part);
  std::ranges::copy(part, bytes.begin() + 3999);
  t.expect(read(t, stream.get(), range(first, 0, kSize)) == bytes,
           "the bytes that the importer wrote");
  const bp_allocator_ops& m = *t.target().allocator;
  const bp_buffer_ref outside = range(second, kSize - 1, 2);
  const uint8_t zero = 0;
  t.expect_refused(m.fill(m.self, stream.get(), &outside, &zero, 1), BP_INVALID_ARGUMENT,
                   "a range that leaves the imported buffer");
}

void another_process_shows_the_same_bytes(Context& t) {
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_exportable(t);
  std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(buffer, 0, kSize), bytes);
  const Exported exported = export_of(t, buffer.get());
  nlohmann::json argument = exported.words();
  argument["expected"] = bytes;
  const bool is_alias = flags_of(t, import(t, exported.handle)) == BP_BUFFER_ALIASES;
  run_in_child(t, "import_and_invert", json_text(argument), exported.handle.fd);
  for (uint8_t& byte : bytes) {
    if (is_alias) byte = static_cast<uint8_t>(~byte);
  }
  t.expect(read(t, stream.get(), range(buffer, 0, kSize)) == bytes,
           "the bytes that the other process wrote");
}

void handles_without_a_buffer_are_refused(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedBuffer shared = make_exportable(t), plain = make_buffer(t, kSize);
  const Exported good = export_of(t, shared.get());
  bp_external_handle out = blank_handle();
  out.size_bytes = 77;
  t.expect_refused(m.export_buffer(m.self, plain.get(), good.handle.type, &out),
                   BP_INVALID_ARGUMENT, "export of a buffer without BP_MEMORY_EXPORT");
  t.expect_refused(m.export_buffer(m.self, shared.get(), 0x7FFF, &out), BP_UNSUPPORTED,
                   "export by an unknown type");
  t.expect(out.fd == -1 && out.size_bytes == 77, "out_handle after failures");

  bp_buffer* buffer = t.sentinel<bp_buffer>();
  const auto refused = [&](const bp_external_handle& handle, bp_status want, const char* what) {
    const bp_status status = m.import_buffer(m.self, t.target().device, &handle, &buffer);
    t.expect_refused(status, want, what);
    if (status == BP_OK) static_cast<void>(m.deallocate(m.self, buffer, nullptr));
    buffer = t.sentinel<bp_buffer>();
  };
  bp_external_handle wrong = good.handle;
  wrong.type = 0x7FFF;
  refused(wrong, BP_UNSUPPORTED, "import by an unknown type");
  wrong = good.handle;
  wrong.size_bytes += 1u << 20;
  refused(wrong, BP_INVALID_ARGUMENT, "import of more bytes than were exported");
  wrong = good.handle;
  if (!has_descriptor(wrong.type)) {
    const std::vector<uint8_t> bytes(wrong.byte_count, 0xEE);
    wrong.bytes = bytes.data();
    refused(wrong, BP_INVALID_ARGUMENT, "import of bytes that no export gave");
    return;
  }
  wrong.fd = -1;
  refused(wrong, BP_INVALID_ARGUMENT, "import of descriptor -1");
  wrong.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  refused(wrong, BP_INVALID_ARGUMENT, "import of a descriptor of another file");
  ::close(wrong.fd);
}

void descriptor_belongs_to_the_caller(Context& t) {
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_exportable(t);
  Exported first = export_of(t, buffer.get()), second = export_of(t, buffer.get());
  if (!has_descriptor(first.handle.type)) t.not_supported("buffers are not exported as files");
  t.expect(first.handle.fd != second.handle.fd, "each export gives a descriptor of its own");
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(buffer, 0, kSize), bytes);
  {
    OwnedBuffer imported = import(t, first.handle);
    t.expect(first.close(), "the descriptor is open after the import");
    t.expect(read(t, stream.get(), range(imported, 0, kSize)) == bytes,
             "the imported buffer when the descriptor is closed");
    imported = import(t, second.handle);
    t.expect(read(t, stream.get(), range(imported, 0, kSize)) == bytes,
             "an import by the other descriptor");
  }
  t.expect(second.close(), "the descriptor is open after the end of the import");
}

void bytes_live_as_long_as_the_buffer(Context& t) {
  const OwnedBuffer buffer = make_exportable(t);
  const Exported first = export_of(t, buffer.get());
  if (first.handle.byte_count == 0) t.not_supported("buffers are not exported as bytes");
  const std::vector<uint8_t> bytes = first.bytes();
  const Exported second = export_of(t, buffer.get());
  const OwnedBuffer imported = import(t, second.handle);
  t.expect(first.bytes() == bytes, "the bytes of an export behind another export and an import");
}

void imported_buffer_says_whether_it_aliases(Context& t) {
  const OwnedBuffer buffer = make_exportable(t);
  const Exported exported = export_of(t, buffer.get());
  const OwnedBuffer imported = import(t, exported.handle);
  t.expect_eq(flags_of(t, buffer), bp_buffer_flags{0}, "flags of the exported buffer");
  t.expect_eq(flags_of(t, make_buffer(t, kSize)), bp_buffer_flags{0}, "flags of a plain buffer");
  const bp_buffer_flags flags = flags_of(t, imported);
  t.expect(flags == BP_BUFFER_ALIASES || flags == BP_BUFFER_COPIES,
           "flags of the imported buffer: one of the two is set");
}

void memory_lives_until_the_last_import_ends(Context& t) {
  const OwnedStream stream = make_stream(t);
  OwnedBuffer exporter = make_exportable(t);
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(exporter, 0, kSize), bytes);
  OwnedBuffer first, second;
  {
    const Exported exported = export_of(t, exporter.get());
    first = import(t, exported.handle);
    second = import(t, exported.handle);
  }
  exporter.reset();
  first.reset();
  // Memory that was freed too early would be given out now.
  std::vector<OwnedBuffer> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(make_exportable(t));
    write(t, stream.get(), range(others.back(), 0, kSize), std::vector<uint8_t>(kSize, 0xDD));
  }
  t.expect(read(t, stream.get(), range(second, 0, kSize)) == bytes, "the last imported buffer");
}

void check_in_child(bp_status status, TestHost& host, const char* what) {
  if (status == BP_OK) return;
  child_fails(std::string("in the other process: ") + what + ": " + bp_status_name(status) + ": " +
              host.take_text());
}

void freed_imports_leave_nothing(Context& t) {
  const OwnedBuffer buffer = make_exportable(t);
  expect_nothing_left(t, "imports of a buffer", [&] {
    const Exported exported = export_of(t, buffer.get());
    import(t, exported.handle);
  });
}

}  // namespace

// Imports the buffer of the task, compares its bytes, and inverts each of them.
void import_and_invert(const ChildTask& task) {
  const auto argument = nlohmann::json::parse(task.argument);
  const Received received(argument, task.descriptor);
  const bp_external_handle& handle = received.handle;
  TestHost host(task.option_list());
  const PluginEntry entry(task.plugin);
  if (entry.get() == nullptr) child_fails("in the other process: the plugin does not open");
  RawInstance instance(entry, host);
  if (!instance.problem().empty()) child_fails("in the other process: " + instance.problem());
  bp_device* const device = instance.device(task.device);
  if (device == nullptr) child_fails("in the other process there is no such device");

  const bp_allocator_ops& m = instance.allocator();
  const bp_stream_ops& streams = instance.streams();
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  check_in_child(streams.default_stream(streams.self, device, &stream), host, "default_stream");
  check_in_child(m.import_buffer(m.self, device, &handle, &buffer), host, "import_buffer");
  const bp_buffer_ref whole{buffer, 0, handle.size_bytes};
  std::vector<uint8_t> bytes(handle.size_bytes);
  check_in_child(
      m.copy_to_host(m.self, stream, bytes.data(), &whole, BP_BORROW_DURING_CALL, UINT64_MAX), host,
      "copy_to_host");
  if (bytes != argument.at("expected").get<std::vector<uint8_t>>()) {
    child_fails("the other process does not find the bytes that were written", "MEMORY-17");
  }
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(~byte);
  check_in_child(m.copy_from_host(m.self, stream, &whole, bytes.data(), BP_BORROW_DURING_CALL),
                 host, "copy_from_host");
  check_in_child(streams.synchronize(streams.self, stream, kTimeoutNs), host, "synchronize");
  check_in_child(m.deallocate(m.self, buffer, nullptr), host, "deallocate");
}

void add_external_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "memory",
      {
          {"both_buffers_show_the_same_bytes",
           {"MEMORY-17", "MEMORY-1"},
           both_buffers_show_the_same_bytes},
          {"another_process_shows_the_same_bytes",
           {"MEMORY-17"},
           another_process_shows_the_same_bytes},
          {"handles_without_a_buffer_are_refused",
           {"MEMORY-18", "ERROR-2"},
           handles_without_a_buffer_are_refused},
          {"descriptor_belongs_to_the_caller", {"EXTERNAL-1"}, descriptor_belongs_to_the_caller},
          {"bytes_live_as_long_as_the_buffer", {"EXTERNAL-3"}, bytes_live_as_long_as_the_buffer},
          {"imported_buffer_says_whether_it_aliases",
           {"MEMORY-26"},
           imported_buffer_says_whether_it_aliases},
          {"memory_lives_until_the_last_import_ends",
           {"EXTERNAL-2"},
           memory_lives_until_the_last_import_ends},
          {"freed_imports_leave_nothing", {"ENTRY-10"}, freed_imports_leave_nothing},
      });
}

}  // namespace bp::conformance
