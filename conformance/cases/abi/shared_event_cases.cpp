// Cases for the events that processes share, in api/include/backplane/stream.h.
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/conversation.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

// ---- Handles ------------------------------------------------------------------------------------

OwnedEvent make_exportable(Context& t) { return make_event(t, BP_EVENT_EXPORTABLE); }

// Exports the event by the first type that the backend has.
Exported export_of(Context& t, const OwnedEvent& event) {
  const bp_event_ops& events = *t.target().events;
  for (const bp_external_type type : kExternalTypes) {
    bp_external_handle handle = blank_handle();
    const bp_status status = events.export_event(events.self, event.get(), type, &handle);
    if (status == BP_UNSUPPORTED) continue;
    t.require_ok(status, "export_event");
    t.expect_eq(handle.type, type, "type of the handle");
    t.expect_eq(handle.size_bytes, uint64_t{0}, "size_bytes of the handle of an event");
    return Exported(handle);
  }
  t.fail("create takes BP_EVENT_EXPORTABLE, and no type can be exported: " +
         std::string(bp_error_text()));
}

OwnedEvent import(Context& t, const Exported& exported) {
  const bp_event_ops& events = *t.target().events;
  bp_event* event = nullptr;
  t.require_ok(events.import_event(events.self, t.target().device, &exported.handle, &event),
               "import_event");
  return OwnedEvent(event, {&events});
}

void record(Context& t, const OwnedEvent& event, const OwnedStream& stream) {
  const bp_event_ops& events = *t.target().events;
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
}

void expect_done(Context& t, const OwnedEvent& event, uint32_t want, const char* what) {
  const bp_event_ops& events = *t.target().events;
  uint32_t done = 2;
  t.require_ok(events.query(events.self, event.get(), &done), "query");
  t.expect_eq(done, want, what);
}

// Waits for all work of a stream, whether it failed or not, because records keep a reference to
// their event until then.
void settle(Context& t, const OwnedStream& stream) {
  const bp_stream_ops& streams = *t.target().streams;
  static_cast<void>(streams.synchronize(streams.self, stream.get(), kTimeoutNs));
  bp_error_clear();
}

// ---- Two handles in one process -----------------------------------------------------------------

// Work that one handle records must hold back work that waits through the other handle.
void expect_order(Context& t, const OwnedEvent& recorded, const OwnedEvent& waited) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), result = make_buffer(t, kSize);
  const bp_buffer_ref from = range(source, 0, kSize), to = range(result, 0, kSize);
  write(t, writer.get(), from, std::vector<uint8_t>(kSize, 1));
  Gate gate(t);
  gate.hold(writer.get());
  const uint8_t two = 2;
  t.require_ok(m.fill(m.self, writer.get(), &from, &two, 1), "fill");
  record(t, recorded, writer);
  t.require_ok(streams.wait_event(streams.self, reader.get(), waited.get()), "wait_event");
  t.require_ok(m.copy(m.self, reader.get(), &to, &from), "copy");
  expect_done(t, waited, 0, "query while the recorded work is held back");
  t.expect_refused(streams.synchronize(streams.self, reader.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of the reader while the writer is held back");
  gate.open();
  t.expect(read(t, reader.get(), to) == std::vector<uint8_t>(kSize, 2),
           "the bytes that the reader saw");
  t.expect_eq(events.synchronize(events.self, waited.get(), kTimeoutNs), BP_OK,
              "synchronize of the event");
  expect_done(t, waited, 1, "query when the recorded work has ended");
  settle(t, writer);
}

void imported_event_orders_both_ways(Context& t) {
  const OwnedEvent event = make_exportable(t);
  const Exported exported = export_of(t, event);
  const OwnedEvent imported = import(t, exported);
  expect_done(t, imported, 1, "query of an imported event that nobody recorded");
  expect_order(t, event, imported);
  expect_order(t, imported, event);
}

void latest_record_counts_on_both_sides(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedEvent event = make_exportable(t);
  const Exported exported = export_of(t, event);
  const OwnedEvent imported = import(t, exported);
  const OwnedStream quick = make_stream(t), held = make_stream(t);
  Gate gate(t);
  gate.hold(held.get());
  record(t, event, held);
  record(t, imported, quick);
  finish(t, quick.get());
  t.expect_eq(events.synchronize(events.self, event.get(), kTimeoutNs), BP_OK,
              "synchronize after the other side has recorded again");
  record(t, imported, held);
  t.expect_refused(events.synchronize(events.self, event.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize while the other side's recorded work is held back");
  record(t, event, quick);
  t.expect_eq(events.synchronize(events.self, imported.get(), kTimeoutNs), BP_OK,
              "synchronize of the imported event after the exporter has recorded again");
  gate.open();
  settle(t, held);
  settle(t, quick);
}

void imported_event_carries_a_failure(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const OwnedEvent event = make_exportable(t);
  const Exported exported = export_of(t, event);
  const OwnedEvent imported = import(t, exported);
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED), waiter = make_stream(t);
  record(t, event, failed);
  t.expect_refused(events.synchronize(events.self, imported.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize of the imported event");
  // The failure may show at once, or when the waiter reaches the event.
  const bp_status status = streams.wait_event(streams.self, waiter.get(), imported.get());
  if (status != BP_OK) t.expect_refused(status, BP_STREAM_FAILED, "wait_event");
  t.expect_refused(streams.synchronize(streams.self, waiter.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize of a waiter");
  settle(t, failed);
}

void event_lives_until_the_last_import_ends(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  OwnedEvent exporter = make_exportable(t);
  OwnedEvent first, second;
  {
    const Exported exported = export_of(t, exporter);
    first = import(t, exported);
    second = import(t, exported);
  }
  Gate gate(t);
  gate.hold(stream.get());
  record(t, exporter, stream);
  exporter.reset();
  t.expect_refused(events.synchronize(events.self, first.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of an import when the exporter has ended its event");
  first.reset();
  expect_done(t, second, 0, "query of the last import");
  gate.open();
  t.expect_eq(events.synchronize(events.self, second.get(), kTimeoutNs), BP_OK,
              "synchronize of the last import");
  settle(t, stream);
}

// ---- Two processes ------------------------------------------------------------------------------

void another_process_waits_for_a_record(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_exportable(t), gate = make_event(t, BP_EVENT_HOST_SIGNAL);
  const Exported exported = export_of(t, event);
  t.require_ok(streams.wait_event(streams.self, stream.get(), gate.get()), "wait_event");
  record(t, event, stream);
  bool is_open = false;
  // The gate opens whatever happens to the child, so that nothing waits for ever.
  const auto open = [&](int channel) -> std::string {
    const bool is_asked = receive_letter(channel, 'w');
    is_open = events.signal(events.self, gate.get(), BP_OK) == BP_OK;
    return is_asked ? "" : "the other process never came to wait";
  };
  {
    Conversation talk(t);
    talk.hold("wait_for_shared_event", exported, open);
  }
  t.expect(is_open, "the gate opened");
  finish(t, stream.get());
}

// The parent's part if the child records: `stream` waits until the child lets it continue.
std::string wait_for_child(const bp_target& target, bp_stream* stream, bp_event* event,
                           int channel) {
  const bp_stream_ops& streams = *target.streams;
  const bp_event_ops& events = *target.events;
  if (!receive_letter(channel, 'r')) return "the other process never came to record";
  const auto has = [](bp_status got, bp_status want, const std::string& what) {
    if (got == want) return std::string();
    const std::string text = got == BP_OK ? "" : std::string(": ") + bp_error_text();
    return what + " gave " + bp_status_name(got) + ", not " + bp_status_name(want) + text;
  };
  std::string problem = has(streams.wait_event(streams.self, stream, event), BP_OK, "wait_event");
  if (problem.empty()) {
    problem = has(streams.synchronize(streams.self, stream, kMomentNs), BP_TIMEOUT,
                  "synchronize while the work of the other process is held back");
  }
  uint32_t done = 2;
  if (problem.empty()) problem = has(events.query(events.self, event, &done), BP_OK, "query");
  if (problem.empty() && done != 0) problem = "query is early for the work of another process";
  if (!send_letter(channel, 'o')) return "the other process has gone";
  if (!problem.empty()) return problem;
  problem = has(streams.synchronize(streams.self, stream, kTimeoutNs), BP_OK, "synchronize");
  return problem.empty() ? has(events.synchronize(events.self, event, kTimeoutNs), BP_OK,
                               "synchronize of the event")
                         : problem;
}

void record_of_another_process_is_waited_for(Context& t) {
  make_event(t, BP_EVENT_HOST_SIGNAL).reset();  // The other process holds its work back by one.
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_exportable(t);
  const Exported exported = export_of(t, event);
  Conversation talk(t);
  talk.hold("record_shared_event", exported, [&](int channel) {
    return wait_for_child(t.target(), stream.get(), event.get(), channel);
  });
}

// ---- The other process --------------------------------------------------------------------------

// The beginning of both routines: a guest with the event of the task.
struct EventGuest : Guest {
  explicit EventGuest(const ChildTask& task) : Guest(task) {
    must(events().import_event(events().self, device, &handle(), &event), "import_event");
  }

  void end() {
    must(events().destroy(events().self, event), "event.destroy");
    Guest::end();
  }

  bp_event* event = nullptr;
};

void ended_imports_leave_nothing(Context& t) {
  const OwnedEvent event = make_exportable(t);
  expect_nothing_left(t, "imports of an event", [&] {
    const Exported exported = export_of(t, event);
    import(t, exported);
  });
}

}  // namespace

// Waits for the event of the task. Asks for its completion only after it was seen to wait.
void wait_for_shared_event(const ChildTask& task) {
  EventGuest g(task);
  g.must(g.streams().wait_event(g.streams().self, g.stream, g.event), "wait_event");
  if (g.streams().synchronize(g.streams().self, g.stream, kMomentNs) != BP_TIMEOUT) {
    child_fails("the other process does not wait for the work that was recorded", "EVENT-13");
  }
  uint32_t done = 2;
  g.must(g.events().query(g.events().self, g.event, &done), "query");
  if (done != 0) child_fails("query in the other process is early", "EVENT-13");
  if (!send_letter(task.channel, 'w')) child_fails("the case has gone");
  g.must(g.streams().synchronize(g.streams().self, g.stream, kTimeoutNs), "synchronize");
  g.must(g.events().query(g.events().self, g.event, &done), "query");
  if (done != 1) child_fails("query behind the wait still reports unfinished work", "EVENT-13");
  g.end();
}

// Records work that is held back until the case was seen to wait for it.
void record_shared_event(const ChildTask& task) {
  EventGuest g(task);
  const bp_event_desc desc{.struct_size = sizeof(bp_event_desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  bp_event* gate = nullptr;
  g.must(g.events().create(g.events().self, g.device, &desc, &gate), "event.create");
  g.must(g.streams().wait_event(g.streams().self, g.stream, gate), "wait_event");
  g.must(g.events().record(g.events().self, g.event, g.stream), "record");
  const bool is_answered = send_letter(task.channel, 'r') && receive_letter(task.channel, 'o');
  g.must(g.events().signal(g.events().self, gate, BP_OK), "signal");
  g.must(g.streams().synchronize(g.streams().self, g.stream, kTimeoutNs), "synchronize");
  g.must(g.events().destroy(g.events().self, gate), "event.destroy");
  g.end();
  if (!is_answered) child_fails("the case has gone");
}

void add_shared_event_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "event",
      {
          {"imported_event_orders_both_ways",
           {"EVENT-13", "EVENT-10"},
           imported_event_orders_both_ways},
          {"latest_record_counts_on_both_sides", {"EVENT-13"}, latest_record_counts_on_both_sides},
          {"imported_event_carries_a_failure",
           {"EVENT-13", "EVENT-5"},
           imported_event_carries_a_failure},
          {"event_lives_until_the_last_import_ends",
           {"EXTERNAL-2"},
           event_lives_until_the_last_import_ends},
          {"another_process_waits_for_a_record", {"EVENT-13"}, another_process_waits_for_a_record},
          {"record_of_another_process_is_waited_for",
           {"EVENT-13"},
           record_of_another_process_is_waited_for},
          {"ended_imports_leave_nothing", {"ENTRY-10"}, ended_imports_leave_nothing},
      });
}

}  // namespace bp::conformance
