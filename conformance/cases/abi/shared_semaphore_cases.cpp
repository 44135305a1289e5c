// Cases for the semaphores that processes share, in api/include/backplane/semaphore.h.
#include <fcntl.h>
#include <unistd.h>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/conversation.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"
#include "conformance/cases/fixtures/semaphores.hpp"

namespace bp::conformance {
namespace {

OwnedSemaphore make_exportable(Context& t, uint64_t value = 0) {
  return make_semaphore(t, value, BP_SEMAPHORE_EXPORTABLE);
}

// Exports the semaphore by the first type that the backend has.
Exported export_of(Context& t, const OwnedSemaphore& semaphore) {
  const bp_semaphore_ops& ops = *t.target().semaphores;
  for (const bp_external_type type : kExternalTypes) {
    bp_external_handle handle = blank_handle();
    const bp_status status = ops.export_semaphore(ops.self, semaphore.get(), type, &handle);
    if (status == BP_UNSUPPORTED) continue;
    t.require_ok(status, "export_semaphore");
    t.expect_eq(handle.type, type, "type of the handle");
    t.expect_eq(handle.size_bytes, uint64_t{0}, "size_bytes of the handle of a semaphore");
    return Exported(handle);
  }
  t.fail("create takes BP_SEMAPHORE_EXPORTABLE, and no type can be exported: " +
         std::string(bp_error_text()));
}

OwnedSemaphore import(Context& t, const Exported& exported) {
  const bp_semaphore_ops& ops = *t.target().semaphores;
  bp_semaphore* semaphore = nullptr;
  t.require_ok(ops.import_semaphore(ops.self, t.target().device, &exported.handle, &semaphore),
               "import_semaphore");
  return OwnedSemaphore(semaphore, {&ops});
}

// Signals one handle from a stream, and waits through the other one.
void expect_one_value(Context& t, const OwnedSemaphore& signalled, const OwnedSemaphore& waited,
                      uint64_t value) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  Gate gate(t);
  gate.hold(writer.get());
  submit_wait(t, reader, waited, value);
  submit_signal(t, writer, signalled, value);
  t.expect_refused(streams.synchronize(streams.self, reader.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of the reader while the signal is held back");
  t.expect_eq(value_of(t, waited), value - 1, "the value while the signal is held back");
  gate.open();
  finish(t, reader.get());
  t.expect_eq(wait_for(t, waited, value), BP_OK, "synchronize");
  t.expect_eq(value_of(t, waited), value, "the value at the end");
  finish(t, writer.get());
}

void imported_semaphore_has_the_same_value(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const OwnedSemaphore s = make_exportable(t, 40);
  const Exported exported = export_of(t, s);
  const OwnedSemaphore imported = import(t, exported);
  expect_one_value(t, s, imported, 41);
  expect_one_value(t, imported, s, 42);
  t.expect_refused(ops.signal(ops.self, imported.get(), 42), BP_INVALID_ARGUMENT,
                   "signal of a value that the other handle has signalled");
}

void exports_carry_values_alone(Context& t) {
  const OwnedSemaphore s = make_exportable(t);
  const Exported exported = export_of(t, s);
  const OwnedSemaphore imported = import(t, exported);
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED), waiter = make_stream(t);
  submit_wait(t, waiter, imported, 1);
  submit_signal(t, failed, s, 1);
  t.expect_eq(wait_for(t, imported, 1), BP_OK, "synchronize through the other handle");
  finish(t, waiter.get(), "synchronize of a stream that waits through the other handle");
  t.expect_refused(wait_for(t, s, 1), BP_ABORTED, "synchronize through the same handle");
}

void semaphore_lives_until_the_last_import_ends(Context& t) {
  OwnedSemaphore exporter = make_exportable(t, 5);
  OwnedSemaphore first, second;
  {
    const Exported exported = export_of(t, exporter);
    first = import(t, exported);
    second = import(t, exported);
  }
  const OwnedStream waiter = make_stream(t);
  submit_wait(t, waiter, exporter, 6);
  exporter.reset();
  signal(t, first, 6);
  first.reset();
  finish(t, waiter.get(), "synchronize of a stream that waits through an ended handle");
  t.expect_eq(value_of(t, second), uint64_t{6}, "the value of the last import");
}

void handles_without_a_semaphore_are_refused(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const OwnedSemaphore shared = make_exportable(t), plain = make_semaphore(t);
  const Exported good = export_of(t, shared);
  bp_external_handle out = blank_handle();
  t.expect_refused(ops.export_semaphore(ops.self, plain.get(), good.handle.type, &out),
                   BP_INVALID_ARGUMENT, "export of a semaphore without BP_SEMAPHORE_EXPORTABLE");
  t.expect_refused(ops.export_semaphore(ops.self, shared.get(), 0x7FFF, &out), BP_UNSUPPORTED,
                   "export by an unknown type");
  t.expect_eq(out.fd, -1, "out_handle after failures");
  bp_semaphore* semaphore = t.sentinel<bp_semaphore>();
  const auto refused = [&](const bp_external_handle& handle, bp_status want, const char* what) {
    const bp_status status = ops.import_semaphore(ops.self, t.target().device, &handle, &semaphore);
    t.expect_refused(status, want, what);
    if (status == BP_OK) static_cast<void>(ops.destroy(ops.self, semaphore));
    semaphore = t.sentinel<bp_semaphore>();
  };
  bp_external_handle wrong = good.handle;
  wrong.type = 0x7FFF;
  refused(wrong, BP_UNSUPPORTED, "import by an unknown type");
  wrong = good.handle;
  if (!has_descriptor(wrong.type)) {
    const std::vector<uint8_t> bytes(wrong.byte_count, 0xEE);
    wrong.bytes = bytes.data();
    return refused(wrong, BP_INVALID_ARGUMENT, "import of bytes that no export gave");
  }
  wrong.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  refused(wrong, BP_INVALID_ARGUMENT, "import of a descriptor of another file");
  ::close(wrong.fd);
}

// ---- Two processes ------------------------------------------------------------------------------

// This process signals 1 when the other one was seen to wait, and waits for its 2.
void two_processes_count_together(Context& t) {
  const OwnedSemaphore s = make_exportable(t);
  const Exported exported = export_of(t, s);
  const bp_semaphore_ops& ops = semaphore_table(t);
  {
    Conversation talk(t);
    talk.hold("count_with_shared_semaphore", exported, [&](int channel) -> std::string {
      const bool is_asked = receive_letter(channel, 'w');
      if (ops.signal(ops.self, s.get(), 1) != BP_OK) return bp_error_text();
      return is_asked ? "" : "the other process never came to wait";
    });
  }
  t.expect_eq(wait_for(t, s, 2), BP_OK, "synchronize for the other process");
  t.expect_eq(value_of(t, s), uint64_t{2}, "the value that the other process signalled");
}

void ended_imports_leave_nothing(Context& t) {
  const OwnedSemaphore semaphore = make_exportable(t);
  expect_nothing_left(t, "imports of a semaphore", [&] {
    const Exported exported = export_of(t, semaphore);
    import(t, exported);
  });
}

}  // namespace

void count_with_shared_semaphore(const ChildTask& task) {
  Guest g(task);
  const bp_semaphore_ops& ops = g.semaphores();
  bp_semaphore* semaphore = nullptr;
  uint64_t value = 77;
  g.must(ops.import_semaphore(ops.self, g.device, &g.handle(), &semaphore), "import_semaphore");
  g.must(ops.submit_wait(ops.self, g.stream, semaphore, 1), "submit_wait");
  if (g.streams().synchronize(g.streams().self, g.stream, kMomentNs) != BP_TIMEOUT) {
    child_fails("the other process does not wait for the value", "SEMAPHORE-16");
  }
  g.must(ops.query(ops.self, semaphore, &value), "query");
  if (value != 0) child_fails("query in the other process is early", "SEMAPHORE-16");
  if (!send_letter(task.channel, 'w')) child_fails("the case has gone");
  g.must(g.streams().synchronize(g.streams().self, g.stream, kTimeoutNs), "stream.synchronize");
  g.must(ops.query(ops.self, semaphore, &value), "query");
  if (value != 1) child_fails("query behind the wait gives another value", "SEMAPHORE-16");
  g.must(ops.submit_signal(ops.self, g.stream, semaphore, 2), "submit_signal");
  g.must(ops.synchronize(ops.self, semaphore, 2, kTimeoutNs), "semaphore.synchronize");
  g.must(ops.destroy(ops.self, semaphore), "semaphore.destroy");
  g.end();
}

void add_shared_semaphore_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "semaphore",
      {
          {"imported_semaphore_has_the_same_value",
           {"SEMAPHORE-16", "SEMAPHORE-4"},
           imported_semaphore_has_the_same_value},
          {"exports_carry_values_alone", {"SEMAPHORE-17"}, exports_carry_values_alone},
          {"semaphore_lives_until_the_last_import_ends",
           {"EXTERNAL-2", "SEMAPHORE-9"},
           semaphore_lives_until_the_last_import_ends},
          {"handles_without_a_semaphore_are_refused",
           {"SEMAPHORE-18", "ERROR-2"},
           handles_without_a_semaphore_are_refused},
          {"two_processes_count_together", {"SEMAPHORE-16"}, two_processes_count_together},
          {"ended_imports_leave_nothing", {"ENTRY-10"}, ended_imports_leave_nothing},
      });
}

}  // namespace bp::conformance
