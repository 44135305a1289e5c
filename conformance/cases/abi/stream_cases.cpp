// Cases for the streams of api/include/backplane/stream.h. There is one function for each rule; the
// table at the end is the list that the CLI shows.
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

void unknown_flag_is_rejected(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_stream_desc desc{.struct_size = sizeof(bp_stream_desc),
                            .struct_type = BP_STRUCT_STREAM_DESC,
                            .flags = 1u << 31};
  bp_stream* stream = t.sentinel<bp_stream>();
  const bp_status status = streams.create(streams.self, t.target().device, &desc, &stream);
  t.expect_refused(status, BP_INVALID_ARGUMENT, "unknown flag");
  if (status == BP_OK) {
    t.require_ok(streams.destroy(streams.self, stream), "destroy");
  } else {
    t.expect_eq(stream, t.sentinel<bp_stream>(), "out_stream after a failure");
  }
}

// The desc is from a later release. It is valid if the part that this release does not know is
// zero.
void longer_desc_is_read_by_its_tail(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  struct Later {
    bp_stream_desc known;
    uint64_t appended;
  } desc{{.struct_size = sizeof(Later), .struct_type = BP_STRUCT_STREAM_DESC}, 0};
  bp_stream* stream = nullptr;
  t.require_ok(streams.create(streams.self, t.target().device, &desc.known, &stream),
               "create with a longer desc whose tail is zero");
  t.require_ok(streams.destroy(streams.self, stream), "destroy");
  desc.appended = 1;
  stream = t.sentinel<bp_stream>();
  t.expect_refused(streams.create(streams.self, t.target().device, &desc.known, &stream),
                   BP_INCOMPATIBLE, "a longer desc whose tail is not zero");
  desc.known.struct_size = 8;
  t.expect_refused(streams.create(streams.self, t.target().device, &desc.known, &stream),
                   BP_INCOMPATIBLE, "a desc shorter than the first release");
}

void null_arguments_are_refused(Context& t) {
  const bp_stream_ops& s = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  uint32_t done = 7;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(s.create(s.self, t.target().device, nullptr, nullptr), "create: out_stream");
  refused(s.default_stream(s.self, t.target().device, nullptr), "default_stream: out_stream");
  refused(s.query(s.self, nullptr, &done), "query: stream");
  refused(s.query(s.self, stream.get(), nullptr), "query: out_done");
  refused(s.status(s.self, nullptr), "status: stream");
  refused(s.clear_failure(s.self, nullptr), "clear_failure: stream");
  refused(s.synchronize(s.self, nullptr, 0), "synchronize: stream");
  refused(s.flush(s.self, nullptr), "flush: stream");
  refused(s.wait_event(s.self, nullptr, event.get()), "wait_event: stream");
  refused(s.wait_event(s.self, stream.get(), nullptr), "wait_event: event");
  refused(s.add_callback(s.self, stream.get(), nullptr, nullptr), "add_callback: callback");
  t.expect_eq(done, 7u, "out_done after a failure");
}

void new_stream_is_idle(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  uint32_t done = 0;
  t.expect_eq(streams.status(streams.self, stream.get()), BP_OK, "status of a new stream");
  t.expect_eq(streams.synchronize(streams.self, stream.get(), 0), BP_OK, "synchronize when idle");
  t.require_ok(streams.query(streams.self, stream.get(), &done), "query");
  t.expect_eq(done, 1u, "query of a new stream");
}

void default_stream_is_one_and_stays(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  bp_stream *first = nullptr, *second = nullptr;
  t.require_ok(streams.default_stream(streams.self, t.target().device, &first), "default_stream");
  t.require_ok(streams.default_stream(streams.self, t.target().device, &second), "default_stream");
  t.expect_eq(first, second, "two calls lend one handle");
  t.expect_refused(streams.destroy(streams.self, first), BP_INVALID_ARGUMENT,
                   "destroy of the default stream");
  t.expect_eq(streams.status(streams.self, first), BP_OK, "status afterwards");
}

void destroy_accepts_null(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  t.expect_eq(streams.destroy(streams.self, nullptr), BP_OK, "stream.destroy(NULL)");
}

// Each copy reads what the copy before it wrote. A gate lets the chain of copies pile up.
void work_is_ordered(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  constexpr uint64_t kSize = 1 << 16;
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(a, 0, kSize), std::vector<uint8_t>(kSize, 0));
  Gate gate(t);
  gate.hold(stream.get());
  const bp_buffer_ref whole_a = range(a, 0, kSize), whole_b = range(b, 0, kSize);
  t.require_ok(memory.copy_from_host(memory.self, stream.get(), &whole_a, bytes.data(),
                                     BP_BORROW_UNTIL_COMPLETE),
               "copy_from_host");
  for (int i = 0; i < 100; ++i) {
    t.require_ok(memory.copy(memory.self, stream.get(), &whole_b, &whole_a), "copy a to b");
    const uint8_t zero = 0;
    t.require_ok(memory.fill(memory.self, stream.get(), &whole_a, &zero, 1), "fill a");
    t.require_ok(memory.copy(memory.self, stream.get(), &whole_a, &whole_b), "copy b to a");
  }
  gate.open();
  t.expect(read(t, stream.get(), whole_a) == bytes, "the bytes at the end of the chain of copies");
}

void query_and_synchronize_are_never_early(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  std::atomic<bool> ran = false;
  t.require_ok(
      streams.add_callback(
          streams.self, stream.get(),
          [](void* data, bp_status) { *static_cast<std::atomic<bool>*>(data) = true; }, &ran),
      "add_callback");
  uint32_t done = 1;
  t.require_ok(streams.query(streams.self, stream.get(), &done), "query");
  t.expect_eq(done, 0u, "query of a stream that is held back");
  t.expect_refused(streams.synchronize(streams.self, stream.get(), 0), BP_TIMEOUT,
                   "synchronize that only looks");
  t.expect_refused(streams.synchronize(streams.self, stream.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize for a moment");
  t.expect(!ran, "the callback did not run early");
  gate.open();
  finish(t, stream.get());
  t.expect(ran, "the callback ran before synchronize returned");
  t.require_ok(streams.query(streams.self, stream.get(), &done), "query");
  t.expect_eq(done, 1u, "query at the end");
}

void flushed_work_completes_by_itself(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  std::atomic<int> runs = 0;
  t.require_ok(streams.add_callback(
                   streams.self, stream.get(),
                   [](void* data, bp_status) { ++*static_cast<std::atomic<int>*>(data); }, &runs),
               "add_callback");
  t.require_ok(streams.flush(streams.self, stream.get()), "flush");
  for (int i = 0; i < 1000 && runs == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  t.expect_eq(runs.load(), 1, "the callback ran once without a further call");
  finish(t, stream.get());
}

struct CallbackLog {
  std::atomic<int> runs = 0;
  std::atomic<bp_status> status = -1;
};

void note(void* data, bp_status status) {
  auto& log = *static_cast<CallbackLog*>(data);
  log.status = status;
  ++log.runs;
}

void callback_gets_the_failure(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  CallbackLog log;  // The log outlives the stream, and so its callback.
  const OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(streams.add_callback(streams.self, stream.get(), note, &log), "add_callback");
  gate.open(BP_ABORTED);
  t.expect_refused(streams.synchronize(streams.self, stream.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize");
  for (int i = 0; i < 1000 && log.runs == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  t.expect_eq(log.runs.load(), 1, "runs of the callback");
  t.expect_eq(log.status.load(), BP_ABORTED, "status that the callback got");
}

void later_work_waits_for_the_callback(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  struct Order {
    std::atomic<int> step = 0;
    std::atomic<bool> is_right = true;
  } order;
  t.require_ok(streams.add_callback(
                   streams.self, stream.get(),
                   [](void* data, bp_status) {
                     std::this_thread::sleep_for(std::chrono::milliseconds(20));
                     static_cast<Order*>(data)->step = 1;
                   },
                   &order),
               "add_callback");
  t.require_ok(streams.add_callback(
                   streams.self, stream.get(),
                   [](void* data, bp_status) {
                     auto& o = *static_cast<Order*>(data);
                     o.is_right = o.step == 1;
                     o.step = 2;
                   },
                   &order),
               "add_callback");
  finish(t, stream.get());
  t.expect(order.step == 2 && order.is_right, "the second callback ran after the first returned");
}

void destroyed_stream_completes_its_work(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  CallbackLog log;
  constexpr uint64_t kSize = 4096;
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  OwnedStream stream = make_stream(t);
  {
    Gate gate(t);
    gate.hold(stream.get());
    const uint8_t pattern = 0xC3;
    t.require_ok(memory.fill(memory.self, stream.get(), &whole, &pattern, 1), "fill");
    t.require_ok(streams.add_callback(streams.self, stream.get(), note, &log), "add_callback");
    t.expect_eq(streams.destroy(streams.self, stream.release()), BP_OK, "destroy while busy");
    t.expect_eq(log.runs.load(), 0, "callbacks before the gate opened");
  }
  for (int i = 0; i < 5000 && log.runs == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (log.runs == 0) t.fail("the callback of a destroyed stream never ran");
  const OwnedStream reader = make_stream(t);
  t.expect(read(t, reader.get(), whole) == std::vector<uint8_t>(kSize, 0xC3),
           "the fill of the destroyed stream");
}

void failure_stays_until_cleared(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_failed_stream(t, BP_ABORTED);
  for (const char* what : {"first synchronize", "second synchronize"}) {
    t.expect_refused(streams.synchronize(streams.self, stream.get(), kTimeoutNs), BP_ABORTED, what);
  }
  t.expect_refused(streams.status(streams.self, stream.get()), BP_ABORTED, "status");
  t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
  t.expect_eq(streams.status(streams.self, stream.get()), BP_OK, "status when cleared");
}

void failed_stream_runs_nothing_until_cleared(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream other = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 256);
  const bp_buffer_ref whole = range(buffer, 0, 256);
  write(t, other.get(), whole, std::vector<uint8_t>(256, 1));
  const OwnedStream stream = make_failed_stream(t, BP_ABORTED);
  const uint8_t two = 2, three = 3;
  t.expect_refused(memory.fill(memory.self, stream.get(), &whole, &two, 1), BP_STREAM_FAILED,
                   "submission to a failed stream");
  t.expect(read(t, other.get(), whole) == std::vector<uint8_t>(256, 1), "nothing ran");
  t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
  t.require_ok(memory.fill(memory.self, stream.get(), &whole, &three, 1), "fill when cleared");
  finish(t, stream.get());
  t.expect(read(t, other.get(), whole) == std::vector<uint8_t>(256, 3), "it ran when cleared");
}

// The host gives the stream the failure that the loss of another device would give it.
void loss_is_told_to_submissions(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedBuffer buffer = make_buffer(t, 256);
  const bp_buffer_ref whole = range(buffer, 0, 256);
  const OwnedStream stream = make_failed_stream(t, BP_DEVICE_LOST);
  const uint8_t two = 2;
  t.expect_refused(memory.fill(memory.self, stream.get(), &whole, &two, 1), BP_DEVICE_LOST,
                   "submission behind a loss");
  t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
  t.require_ok(memory.fill(memory.self, stream.get(), &whole, &two, 1), "fill when cleared");
  finish(t, stream.get());
}

void failure_is_not_seen_by_other_streams(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  const OwnedStream other = make_stream(t);
  t.expect_eq(streams.synchronize(streams.self, other.get(), kTimeoutNs), BP_OK,
              "synchronize of another stream");
  t.expect_eq(streams.status(streams.self, other.get()), BP_OK, "status of another stream");
}

void status_never_blocks(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  std::atomic<bool> waits = false;
  std::thread waiter([&] {
    waits = true;
    static_cast<void>(streams.synchronize(streams.self, stream.get(), kTimeoutNs));
  });
  while (!waits) std::this_thread::yield();
  const bp_status status = streams.status(streams.self, stream.get());
  gate.open();
  waiter.join();
  t.expect_eq(status, BP_OK, "status while another thread synchronizes");
}

}  // namespace

void add_stream_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "stream",
      {
          {"unknown_flag_is_rejected",
           {"STREAM-1", "ERROR-1", "ERROR-2"},
           unknown_flag_is_rejected},
          {"longer_desc_is_read_by_its_tail",
           {"SIZE-1", "SIZE-3", "ERROR-1"},
           longer_desc_is_read_by_its_tail},
          {"null_arguments_are_refused", {"ERROR-3", "ERROR-2"}, null_arguments_are_refused},
          {"new_stream_is_idle", {"STREAM-2"}, new_stream_is_idle},
          {"default_stream_is_one_and_stays",
           {"STREAM-4", "STREAM-6"},
           default_stream_is_one_and_stays},
          {"destroy_accepts_null", {"STREAM-5"}, destroy_accepts_null},
          {"work_is_ordered", {"STREAM-3"}, work_is_ordered},
          {"query_and_synchronize_are_never_early",
           {"STREAM-7", "STREAM-14"},
           query_and_synchronize_are_never_early},
          {"flushed_work_completes_by_itself", {"STREAM-12"}, flushed_work_completes_by_itself},
          {"callback_gets_the_failure", {"STREAM-15"}, callback_gets_the_failure},
          {"later_work_waits_for_the_callback", {"STREAM-16"}, later_work_waits_for_the_callback},
          {"destroyed_stream_completes_its_work",
           {"STREAM-11", "STREAM-15"},
           destroyed_stream_completes_its_work},
          {"failure_stays_until_cleared", {"STREAM-9", "ERROR-1"}, failure_stays_until_cleared},
          {"loss_is_told_to_submissions", {"STREAM-19"}, loss_is_told_to_submissions},
          {"failed_stream_runs_nothing_until_cleared",
           {"STREAM-8", "STREAM-13"},
           failed_stream_runs_nothing_until_cleared},
          {"failure_is_not_seen_by_other_streams",
           {"STREAM-9"},
           failure_is_not_seen_by_other_streams},
          {"status_never_blocks", {"STREAM-10"}, status_never_blocks},
      });
}

}  // namespace bp::conformance
