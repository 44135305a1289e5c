// Cases for streams of the device's own library, in api/include/backplane/stream.h. Only the
// backend knows such streams, so the cases take the native stream of a stream that the backend
// made.
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

void* native_of(Context& t, bp_stream* stream) {
  const bp_stream_ops& streams = *t.target().streams;
  void* native = nullptr;
  const bp_status status = streams.native_handle(streams.self, stream, &native);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "native_handle");
  return native;
}

OwnedStream wrap(Context& t, void* native) {
  const bp_stream_ops& streams = *t.target().streams;
  bp_stream* stream = nullptr;
  const bp_status status = streams.wrap_native(streams.self, t.target().device, native, &stream);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "wrap_native");
  return OwnedStream(stream, {&streams});
}

void fill(Context& t, bp_stream* stream, const bp_buffer_ref& to, uint8_t value) {
  const bp_allocator_ops& m = *t.target().allocator;
  t.require_ok(m.fill(m.self, stream, &to, &value, 1), "fill");
}

void expect_busy(Context& t, bp_stream* stream, const char* what) {
  const bp_stream_ops& streams = *t.target().streams;
  uint32_t done = 1;
  t.require_ok(streams.query(streams.self, stream, &done), "query");
  t.expect_eq(done, 0u, std::string("query of ") + what);
  t.expect_refused(streams.synchronize(streams.self, stream, kMomentNs), BP_TIMEOUT,
                   std::string("synchronize of ") + what);
}

// Both handles submit work in turn, and each piece uses what the one before it wrote.
void wrapped_stream_is_the_same_queue(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedStream wrapped = wrap(t, native_of(t, stream.get()));
  t.expect(native_of(t, wrapped.get()) == native_of(t, stream.get()),
           "both handles lend one native stream");
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  const bp_buffer_ref whole_a = range(a, 0, kSize), whole_b = range(b, 0, kSize);
  bp_stream* const both[] = {stream.get(), wrapped.get()};
  for (const int first : {0, 1}) {
    bp_stream *const one = both[first], *const other = both[1 - first];
    write(t, one, whole_a, std::vector<uint8_t>(kSize, 1));
    Gate gate(t);
    gate.hold(one);
    fill(t, other, whole_a, 2);
    expect_busy(t, other, "one handle while the queue is held back by the other");
    t.require_ok(m.copy(m.self, one, &whole_b, &whole_a), "copy");
    fill(t, other, whole_a, 3);
    gate.open();
    t.expect(read(t, one, whole_b) == std::vector<uint8_t>(kSize, 2),
             "the bytes that a copy saw between two fills by the other handle");
    t.expect(read(t, other, whole_a) == std::vector<uint8_t>(kSize, 3),
             "the bytes after the last fill");
  }
}

void destroy_ends_the_wrapping_alone(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  void* const native = native_of(t, stream.get());
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  OwnedStream wrapped = wrap(t, native);
  Gate gate(t);
  gate.hold(stream.get());
  fill(t, wrapped.get(), whole, 7);
  t.expect_eq(streams.destroy(streams.self, wrapped.release()), BP_OK,
              "destroy of the wrapping while it is busy");
  expect_busy(t, stream.get(), "the stream that was wrapped");
  gate.open();
  t.expect(read(t, stream.get(), whole) == std::vector<uint8_t>(kSize, 7),
           "the work submitted by a handle that has ended");
  t.expect(native_of(t, stream.get()) == native, "the native stream is there as before");
  const OwnedStream again = wrap(t, native);
  fill(t, again.get(), whole, 8);
  t.expect(read(t, stream.get(), whole) == std::vector<uint8_t>(kSize, 8),
           "the work submitted after the stream was wrapped again");
}

void ended_wrappings_leave_nothing(Context& t) {
  const OwnedStream stream = make_stream(t);
  void* const native = native_of(t, stream.get());
  expect_nothing_left(t, "handles of a native stream", [&] { wrap(t, native); });
}

}  // namespace

void add_native_stream_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "stream",
      {
          {"wrapped_stream_is_the_same_queue", {"STREAM-17"}, wrapped_stream_is_the_same_queue},
          {"destroy_ends_the_wrapping_alone", {"STREAM-17"}, destroy_ends_the_wrapping_alone},
          {"ended_wrappings_leave_nothing", {"ENTRY-10"}, ended_wrappings_leave_nothing},
      });
}

}  // namespace bp::conformance
