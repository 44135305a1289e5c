// Cases for what each entry does on a stream that has failed, as api/docs/errors.md lists it.
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/provocation.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 256;

// Launches a kernel on tensors without elements. Returns BP_STREAM_FAILED as well if there is no
// kernel for them.
bp_status launch_nothing(Context& t, bp_stream* stream) {
  const int64_t extent = 0, stride = 1;
  const bp_tensor nothing{.shape = &extent, .strides = &stride, .ndim = 1, .dtype = BP_F32};
  const bp_copy_args copy{.struct_size = sizeof(copy), .x = &nothing, .y = &nothing};
  const bp_add_args add{.struct_size = sizeof(add), .a = &nothing, .b = &nothing, .y = &nothing};
  for (const auto& [op, args] : {std::pair<uint32_t, const void*>{BP_OP_COPY, &copy},
                                 std::pair<uint32_t, const void*>{BP_OP_ADD, &add}}) {
    bp_kernel_choice choice{};
    const bp_status found = bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, op, args, &choice);
    if (found == BP_OK) return bp_kernel_launch(&t.target(), stream, 0, choice.kernel, args);
  }
  return BP_STREAM_FAILED;
}

void stops_what_has_no_work(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = failed_stream(t, provocation);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const OwnedEvent never = make_event(t);
  const bp_buffer_ref front = range(buffer, 0, 0), back = range(buffer, 128, 0);
  uint8_t byte = 7;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_STREAM_FAILED, std::string(what) + " on a failed stream");
  };
  refused(memory.copy(memory.self, stream.get(), &front, &back), "a copy of 0 bytes");
  refused(memory.fill(memory.self, stream.get(), &front, &byte, 1), "a fill of 0 bytes");
  for (const bp_borrow borrow : {BP_BORROW_DURING_CALL, BP_BORROW_UNTIL_COMPLETE}) {
    refused(memory.copy_from_host(memory.self, stream.get(), &front, &byte, borrow),
            "a copy of 0 bytes from the host");
    refused(memory.copy_to_host(memory.self, stream.get(), &byte, &front, borrow, UINT64_MAX),
            "a copy of 0 bytes to the host");
  }
  refused(streams.wait_event(streams.self, stream.get(), never.get()),
          "a wait for an event never recorded");
  const bp_status launched = launch_nothing(t, stream.get());
  bp_error_clear();
  t.expect_eq(launched, BP_STREAM_FAILED, "a launch without elements");
  t.expect_refused(status_of(t, stream.get()), provocation.failure(), "status");
}

void lets_go_on_what_asks_or_ends(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = failed_stream(t, provocation);
  const OwnedEvent event = make_event(t);
  OwnedBuffer buffer = make_buffer(t, kSize);
  uint32_t done = 0;
  t.expect_eq(streams.query(streams.self, stream.get(), &done), BP_OK, "query");
  t.expect_eq(done, 1u, "query of a failed stream");
  t.expect_eq(streams.flush(streams.self, stream.get()), BP_OK, "flush");
  t.expect_eq(events.record(events.self, event.get(), stream.get()), BP_OK, "record");
  t.expect_eq(memory.deallocate(memory.self, buffer.release(), stream.get()), BP_OK,
              "free behind the work of a failed stream");
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = kSize,
                              .stream = stream.get(),
                              .usage = BP_MEMORY_STREAM_ORDERED};
  bp_buffer* ordered = nullptr;
  const bp_status allocated = memory.allocate(memory.self, t.target().device, &desc, &ordered);
  if (allocated != BP_UNSUPPORTED) {
    t.expect_eq(allocated, BP_OK, "allocate in the order of a failed stream");
    t.expect_eq(memory.deallocate(memory.self, ordered, stream.get()), BP_OK, "deallocate of it");
  }
  bp_error_clear();
  t.expect_refused(status_of(t, stream.get()), provocation.failure(), "status");
  t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
  finish(t, stream.get(), "synchronize when cleared");
}

// Returns whether `text` has `number`, not as a part of a longer number.
bool has_number(const std::string& text, const std::string& number) {
  const auto is_digit = [&](size_t at) { return at < text.size() && std::isdigit(text[at]) != 0; };
  for (size_t at = text.find(number); at != text.npos; at = text.find(number, at + 1)) {
    if (!is_digit(at + number.size()) && (at == 0 || !is_digit(at - 1))) return true;
  }
  return false;
}

void bad_data_are_told_by_name_and_place(Context& t) {
  for (const std::unique_ptr<Provocation>& way : provocations(t)) {
    const std::optional<BadElement> bad = way->bad_element();
    if (!bad) continue;
    t.expect_eq(way->failure(), BP_DATA_FAILURE, way->name());
    const OwnedStream stream = failed_stream(t, *way);
    static_cast<void>(status_of(t, stream.get()));
    const std::string text = bp_error_text();
    bp_error_clear();
    t.expect(text.find(bad->op) != text.npos, "the text names the op: " + text);
    t.expect(text.find(bad->argument) != text.npos, "the text names the argument: " + text);
    t.expect(
        has_number(text, std::to_string(bad->position)),
        "the text says that the element is number " + std::to_string(bad->position) + ": " + text);
    return;
  }
  t.not_supported("the device checks no data of gather.f32");
}

}  // namespace

void add_failed_stream_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "failure",
                {
                    {"stops_what_has_no_work", {"STREAM-20"}, with_each<stops_what_has_no_work>},
                    {"lets_go_on_what_asks_or_ends",
                     {"STREAM-21", "EVENT-6"},
                     with_each<lets_go_on_what_asks_or_ends>},
                    {"bad_data_are_told_by_name_and_place",
                     {"STREAM-22"},
                     bad_data_are_told_by_name_and_place},
                });
}

}  // namespace bp::conformance
