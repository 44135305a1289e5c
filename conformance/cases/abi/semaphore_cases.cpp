// Cases for api/include/backplane/semaphore.h.
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/fixtures/semaphores.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

void unknown_flag_is_rejected(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const bp_semaphore_desc desc = semaphore_desc(0, 1u << 31);
  bp_semaphore* semaphore = t.sentinel<bp_semaphore>();
  const bp_status status = ops.create(ops.self, t.target().device, &desc, &semaphore);
  t.expect_refused(status, BP_INVALID_ARGUMENT, "unknown flag");
  if (status == BP_OK) {
    t.require_ok(ops.destroy(ops.self, semaphore), "destroy");
  } else {
    t.expect_eq(semaphore, t.sentinel<bp_semaphore>(), "out_semaphore after a failure");
  }
}

void null_arguments_are_refused(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedSemaphore s = make_semaphore(t);
  uint64_t value = 77;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(ops.create(ops.self, t.target().device, nullptr, nullptr), "create: out_semaphore");
  refused(ops.query(ops.self, nullptr, &value), "query: semaphore");
  refused(ops.query(ops.self, s.get(), nullptr), "query: out_value");
  refused(ops.signal(ops.self, nullptr, 1), "signal: semaphore");
  refused(ops.synchronize(ops.self, nullptr, 0, 0), "synchronize: semaphore");
  refused(ops.submit_signal(ops.self, nullptr, s.get(), 1), "submit_signal: stream");
  refused(ops.submit_signal(ops.self, stream.get(), nullptr, 1), "submit_signal: semaphore");
  refused(ops.submit_wait(ops.self, nullptr, s.get(), 0), "submit_wait: stream");
  refused(ops.submit_wait(ops.self, stream.get(), nullptr, 0), "submit_wait: semaphore");
  refused(ops.clear_failure(ops.self, nullptr), "clear_failure: semaphore");
  t.expect_eq(value, uint64_t{77}, "out_value after failures");
  t.expect_eq(value_of(t, s), uint64_t{0}, "the value of a new semaphore without a value");
  finish(t, stream.get());
}

void destroy_accepts_null(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  t.expect_eq(ops.destroy(ops.self, nullptr), BP_OK, "semaphore.destroy(NULL)");
}

// A reader waits before anybody signals. The writer is held back and signals behind its work.
void work_starts_when_the_value_is_reached(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedSemaphore s = make_semaphore(t);
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), result = make_buffer(t, kSize);
  const bp_buffer_ref from = range(source, 0, kSize), to = range(result, 0, kSize);
  write(t, writer.get(), from, bytes_of(1));
  submit_wait(t, reader, s, 2);
  copy(t, reader.get(), to, from);
  Gate gate(t);
  gate.hold(writer.get());
  fill(t, writer.get(), from, 2);
  submit_signal(t, writer, s, 2);
  signal(t, s, 1);
  t.expect_refused(streams.synchronize(streams.self, reader.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of the reader before its value is reached");
  gate.open();
  t.expect(read(t, reader.get(), to) == bytes_of(2), "the bytes that the reader saw");
  finish(t, writer.get());
  submit_wait(t, reader, s, 1);
  finish(t, reader.get(), "synchronize behind a wait for a value that was passed");
}

void value_rises_behind_the_work(Context& t) {
  const OwnedSemaphore s = make_semaphore(t, 10);
  const OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  submit_signal(t, stream, s, 20);
  t.expect_eq(value_of(t, s), uint64_t{10}, "the value while the stream is held back");
  t.expect_refused(wait_for(t, s, 11, kMomentNs), BP_TIMEOUT, "synchronize for a moment");
  gate.open();
  t.expect_eq(wait_for(t, s, 11), BP_OK, "synchronize");
  t.expect_eq(value_of(t, s), uint64_t{20}, "the value at the end");
}

void wait_with_a_timeout_ends(Context& t) {
  const OwnedSemaphore s = make_semaphore(t, 5);
  t.expect_eq(wait_for(t, s, 5, 0), BP_OK, "synchronize that looks, for the value");
  t.expect_eq(wait_for(t, s, 0, 0), BP_OK, "synchronize that looks, for 0");
  t.expect_refused(wait_for(t, s, 6, 0), BP_TIMEOUT, "synchronize that looks, for a later value");
  t.expect_refused(wait_for(t, s, UINT64_MAX, kMomentNs), BP_TIMEOUT, "synchronize for a moment");
  signal(t, s, UINT64_MAX);
  t.expect_eq(wait_for(t, s, UINT64_MAX, UINT64_MAX), BP_OK, "synchronize at the end");
}

void values_only_rise(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const OwnedSemaphore s = make_semaphore(t, 5);
  const OwnedStream stream = make_stream(t);
  for (const uint64_t value : {uint64_t{0}, uint64_t{4}, uint64_t{5}}) {
    t.expect_refused(ops.signal(ops.self, s.get(), value), BP_INVALID_ARGUMENT, "signal");
    t.expect_refused(ops.submit_signal(ops.self, stream.get(), s.get(), value), BP_INVALID_ARGUMENT,
                     "submit_signal");
  }
  finish(t, stream.get());
  t.expect_eq(value_of(t, s), uint64_t{5}, "the value after signals that were refused");
}

void late_signal_fails_its_stream(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedSemaphore s = make_semaphore(t);
  const OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  submit_signal(t, stream, s, 5);
  signal(t, s, 6);
  gate.open();
  t.expect_refused(streams.synchronize(streams.self, stream.get(), kTimeoutNs), BP_INVALID_ARGUMENT,
                   "synchronize behind a signal that came too late");
  t.expect_eq(value_of(t, s), uint64_t{6}, "the value behind a signal that came too late");
}

// ---- Failures -----------------------------------------------------------------------------------

void failed_stream_signals_its_failure(Context& t) {
  const OwnedSemaphore s = make_semaphore(t, 1);
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  submit_signal(t, failed, s, 3);
  t.expect_refused(wait_for(t, s, 3), BP_ABORTED, "synchronize for the value of the failure");
  t.expect_eq(value_of(t, s), uint64_t{3}, "the value that a failed stream signals");
  t.expect_eq(wait_for(t, s, 1), BP_OK, "synchronize for an earlier value");
  t.expect_refused(wait_for(t, s, 4, kMomentNs), BP_TIMEOUT, "synchronize for a later value");
  const OwnedStream later = make_failed_stream(t, BP_INTERNAL);
  submit_signal(t, later, s, 4);
  t.expect_refused(wait_for(t, s, 4), BP_ABORTED,
                   "synchronize for a later value: the first counts");
}

void waiting_stream_gets_the_failure(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedSemaphore s = make_semaphore(t);
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  const OwnedStream waiter = make_stream(t), early = make_stream(t);
  submit_wait(t, waiter, s, 3);
  submit_wait(t, early, s, 1);
  signal(t, s, 1);
  submit_signal(t, failed, s, 2);
  t.expect_refused(wait_for(t, s, 2), BP_ABORTED, "synchronize for the failed stream's value");
  signal(t, s, 3);
  finish(t, early.get(), "synchronize of a stream that waits for an earlier value");
  t.expect_refused(streams.synchronize(streams.self, waiter.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize of a stream that waits for a later value");
  t.expect_refused(ops.submit_wait(ops.self, waiter.get(), s.get(), 1), BP_STREAM_FAILED,
                   "submit_wait on a failed stream");
}

void cleared_failure_is_gone(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  const OwnedSemaphore s = make_semaphore(t);
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED), waiter = make_stream(t);
  submit_signal(t, failed, s, 1);
  t.expect_refused(wait_for(t, s, 1), BP_ABORTED, "synchronize before clear_failure");
  submit_wait(t, waiter, s, 2);
  t.require_ok(ops.clear_failure(ops.self, s.get()), "clear_failure");
  t.expect_eq(wait_for(t, s, 1), BP_OK, "synchronize behind clear_failure");
  signal(t, s, 2);
  finish(t, waiter.get(), "synchronize of a stream whose wait ends behind clear_failure");
  const OwnedStream again = make_failed_stream(t, BP_INTERNAL);
  submit_signal(t, again, s, 3);
  t.expect_refused(wait_for(t, s, 3), BP_INTERNAL, "synchronize for the next failure");
}

// ---- Ends ---------------------------------------------------------------------------------------

void submitted_work_outlives_the_semaphore(Context& t) {
  OwnedSemaphore s = make_semaphore(t);
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), result = make_buffer(t, kSize);
  const bp_buffer_ref from = range(source, 0, kSize), to = range(result, 0, kSize);
  write(t, writer.get(), from, bytes_of(1));
  Gate gate(t);
  gate.hold(writer.get());
  fill(t, writer.get(), from, 2);
  submit_signal(t, writer, s, 1);
  submit_wait(t, reader, s, 1);
  const bp_semaphore_ops& ops = semaphore_table(t);
  t.expect_eq(ops.destroy(ops.self, s.release()), BP_OK, "destroy");
  copy(t, reader.get(), to, from);
  gate.open();
  t.expect(read(t, reader.get(), to) == bytes_of(2), "the bytes that the reader saw");
  finish(t, writer.get());
}

void capture_refuses_semaphores(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  static_cast<void>(graph_table(t));
  const OwnedSemaphore s = make_semaphore(t);
  const OwnedStream stream = make_stream(t);
  Capturing capturing(t, stream.get());
  t.expect_refused(ops.submit_signal(ops.self, stream.get(), s.get(), 1), BP_INVALID_ARGUMENT,
                   "submit_signal on a capturing stream");
  t.expect_refused(ops.submit_wait(ops.self, stream.get(), s.get(), 0), BP_INVALID_ARGUMENT,
                   "submit_wait on a capturing stream");
  t.expect_eq(capturing.info().node_count, uint64_t{0}, "pieces of work that were recorded");
  capturing.abandon();
  t.expect_eq(value_of(t, s), uint64_t{0}, "the value behind the capture");
}

}  // namespace

void add_semaphore_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "semaphore",
      {
          {"unknown_flag_is_rejected", {"SEMAPHORE-1", "ERROR-2"}, unknown_flag_is_rejected},
          {"null_arguments_are_refused", {"ERROR-3", "ERROR-2"}, null_arguments_are_refused},
          {"destroy_accepts_null", {"SEMAPHORE-10"}, destroy_accepts_null},
          {"work_starts_when_the_value_is_reached",
           {"SEMAPHORE-2"},
           work_starts_when_the_value_is_reached},
          {"value_rises_behind_the_work",
           {"SEMAPHORE-3", "SEMAPHORE-12"},
           value_rises_behind_the_work},
          {"wait_with_a_timeout_ends", {"SEMAPHORE-11"}, wait_with_a_timeout_ends},
          {"values_only_rise", {"SEMAPHORE-4", "SEMAPHORE-12"}, values_only_rise},
          {"late_signal_fails_its_stream", {"SEMAPHORE-5"}, late_signal_fails_its_stream},
          {"failed_stream_signals_its_failure",
           {"SEMAPHORE-7", "SEMAPHORE-8"},
           failed_stream_signals_its_failure},
          {"waiting_stream_gets_the_failure",
           {"SEMAPHORE-8", "SEMAPHORE-15"},
           waiting_stream_gets_the_failure},
          {"cleared_failure_is_gone", {"SEMAPHORE-6"}, cleared_failure_is_gone},
          {"submitted_work_outlives_the_semaphore",
           {"SEMAPHORE-9"},
           submitted_work_outlives_the_semaphore},
          {"capture_refuses_semaphores", {"SEMAPHORE-14", "GRAPH-1"}, capture_refuses_semaphores},
          {"lost_device_ends_waits",
           {"SEMAPHORE-13"},
           [](Context& t) { run_in_child(t, "lose_waits"); }},
      });
}

}  // namespace bp::conformance
