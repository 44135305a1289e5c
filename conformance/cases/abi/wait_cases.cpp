// Cases for what waits, for how long, and for whom: entries that must not block, timeouts near the
// largest, default streams, and events of other devices.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"

namespace bp::conformance {
namespace {

constexpr double kSoonSeconds = 2;  // Far more than a call needs that does not wait.

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Opens the gate after `seconds`, unless the case opens it before. It keeps a call that waits from
// hanging.
class LateGate {
 public:
  LateGate(Context& t, bp_stream* stream, double seconds) : gate_(t) {
    gate_.hold(stream);
    thread_ = std::thread([this, seconds] {
      const auto start = Clock::now();
      while (!is_done_ && seconds_since(start) < seconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      gate_.open();
    });
  }
  ~LateGate() { open(); }
  LateGate(const LateGate&) = delete;

  void open() {
    is_done_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  Gate gate_;
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

// Requires that call() returns BP_OK long before the gate of the stream opens, also while another
// thread waits for the stream.
template <typename Call>
void expect_at_once(Context& t, bp_stream* stream, const std::string& what, const char* tag,
                    Call call) {
  const bp_stream_ops& streams = *t.target().streams;
  LateGate gate(t, stream, 2 * kSoonSeconds);
  std::atomic<bool> waits = false;
  std::thread waiter([&] {
    waits = true;
    static_cast<void>(streams.synchronize(streams.self, stream, kTimeoutNs));
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kMomentNs));
  const auto start = Clock::now();
  const bp_status status = call();
  const double took = seconds_since(start);
  gate.open();
  waiter.join();
  t.expect_eq(status, BP_OK, what + " while another thread waits for the stream");
  if (took > kSoonSeconds) {
    t.add({what + " blocked for " + std::to_string(took) + " s while its stream waited", "blocks",
           tag});
  }
}

void status_and_query_of_a_busy_stream_return_at_once(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  expect_at_once(t, stream.get(), "status of a stream", "STREAM-10",
                 [&] { return streams.status(streams.self, stream.get()); });
  uint32_t is_done = 7;
  expect_at_once(t, stream.get(), "query of a stream", "STREAM-7",
                 [&] { return streams.query(streams.self, stream.get(), &is_done); });
  t.expect_eq(is_done, uint32_t{0}, "query of a stream that waits");
  expect_at_once(t, stream.get(), "flush of a stream", "STREAM-12",
                 [&] { return streams.flush(streams.self, stream.get()); });
}

void query_of_a_waiting_event_returns_at_once(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  uint32_t is_done = 7;
  expect_at_once(t, stream.get(), "record and query of an event", "EVENT-10", [&] {
    const bp_status status = events.record(events.self, event.get(), stream.get());
    return status == BP_OK ? events.query(events.self, event.get(), &is_done) : status;
  });
  t.expect_eq(is_done, uint32_t{0}, "query of an event whose stream waits");
}

// ---- Timeouts -----------------------------------------------------------------------------------

// Times that overflow where they are added to a clock, or taken for a signed number.
constexpr std::array<uint64_t, 4> kLongTimes = {UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63,
                                                (uint64_t{1} << 63) - 1};

// Requires that wait(timeout) waits for the work of a stream that begins a moment later.
template <typename Wait>
void expect_long_waits(Context& t, bp_stream* stream, const std::string& what, const char* tag,
                       Wait wait) {
  constexpr double kMoment = 0.03;
  for (const uint64_t timeout_ns : kLongTimes) {
    LateGate gate(t, stream, kMoment);
    const bp_status status = wait(timeout_ns);
    gate.open();
    if (status == BP_OK) continue;
    t.add({what + " with a timeout of " + std::to_string(timeout_ns) + " ns gave " +
               bp_status_name(status) + ": " + bp_error_text(),
           "timeout", tag});
    bp_error_clear();
  }
}

void the_longest_timeouts_do_not_run_out(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const bp_device_ops& devices = *t.target().devices;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  std::array<uint8_t, 64> bytes{};
  bp_stream* const s = stream.get();
  expect_long_waits(t, s, "synchronize of a stream", "STREAM-14", [&](uint64_t timeout_ns) {
    return streams.synchronize(streams.self, s, timeout_ns);
  });
  expect_long_waits(t, s, "synchronize of an event", "EVENT-2", [&](uint64_t timeout_ns) {
    const bp_status status = events.record(events.self, event.get(), s);
    return status == BP_OK ? events.synchronize(events.self, event.get(), timeout_ns) : status;
  });
  expect_long_waits(t, s, "synchronize of a device", "DEVICE-8", [&](uint64_t timeout_ns) {
    return devices.synchronize(devices.self, t.target().device, timeout_ns);
  });
  expect_long_waits(t, s, "copy_to_host", "MEMORY-10", [&](uint64_t timeout_ns) {
    return memory.copy_to_host(memory.self, s, bytes.data(), &whole, BP_BORROW_DURING_CALL,
                               timeout_ns);
  });
}

// ---- Default streams ----------------------------------------------------------------------------

bp_stream* default_stream_of(Context& t, const bp_target& target) {
  const bp_stream_ops& streams = *target.streams;
  bp_stream* stream = nullptr;
  t.require_ok(streams.default_stream(streams.self, target.device, &stream), "default_stream");
  return stream;
}

void default_stream_is_the_same_in_every_thread(Context& t) {
  bp_stream* const here = default_stream_of(t, t.target());
  const bp_stream_ops& streams = *t.target().streams;
  bp_stream* there = nullptr;
  bp_status status = BP_OK;
  std::thread([&] {
    status = streams.default_stream(streams.self, t.target().device, &there);
  }).join();
  t.require_ok(status, "default_stream in another thread");
  t.expect_eq(there, here, "the default stream of another thread");
}

const bp_target& another_device(Context& t) {
  const std::vector<const bp_target*> devices = devices_of(t);
  if (devices.size() < 2) t.not_supported("the backend has one device");
  return *devices[devices[0] == &t.target() ? 1 : 0];
}

void each_device_has_its_own_default_stream(Context& t) {
  const bp_target& other = another_device(t);
  t.expect(default_stream_of(t, t.target()) != default_stream_of(t, other),
           "two devices lend different default streams");
}

// ---- Events -------------------------------------------------------------------------------------

// A stream of this device waits for an event of another one, whose stream waits.
void work_waits_for_an_event_of_another_device(Context& t) {
  const bp_target& other = another_device(t);
  const bp_stream_ops& theirs = *other.streams;
  const bp_event_ops& events = *other.events;
  bp_stream* made = nullptr;
  t.require_ok(theirs.create(theirs.self, other.device, nullptr, &made), "stream.create");
  const OwnedStream there(made, {&theirs}), here = make_stream(t);
  bp_event* their_event = nullptr;
  t.require_ok(events.create(events.self, other.device, nullptr, &their_event), "event.create");
  const OwnedEvent event(their_event, {&events});
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  write(t, here.get(), whole, std::vector<uint8_t>(64, 1));
  Gate gate(t);
  gate.hold(there.get());
  t.require_ok(events.record(events.self, event.get(), there.get()), "record");
  const bp_stream_ops& streams = *t.target().streams;
  t.require_ok(streams.wait_event(streams.self, here.get(), event.get()), "wait_event");
  const bp_allocator_ops& memory = *t.target().allocator;
  const uint8_t value = 2;
  t.require_ok(memory.fill(memory.self, here.get(), &whole, &value, 1), "fill");
  t.expect_refused(streams.synchronize(streams.self, here.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize while the other device waits");
  gate.open();
  finish(t, here.get());
  t.expect(read(t, here.get(), whole) == std::vector<uint8_t>(64, 2),
           "the work behind the wait has run");
}

void elapsed_time_of_a_wrong_start_is_refused(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent first = make_event(t, BP_EVENT_TIMING), second = make_event(t, BP_EVENT_TIMING);
  const OwnedEvent plain = make_event(t), blank = make_event(t, BP_EVENT_TIMING);
  for (bp_event* event : {first.get(), plain.get()}) {
    t.require_ok(events.record(events.self, event, stream.get()), "record");
  }
  const OwnedBuffer buffer = make_buffer(t, 1 << 20);
  const bp_buffer_ref whole = range(buffer, 0, 1 << 20);
  const uint8_t value = 1;
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.fill(memory.self, stream.get(), &whole, &value, 1), "fill");
  t.require_ok(events.record(events.self, second.get(), stream.get()), "record");
  finish(t, stream.get());
  int64_t elapsed = 7;
  const auto refused = [&](bp_event* from, bp_event* to, const char* what) {
    t.expect_refused(events.elapsed_ns(events.self, from, to, &elapsed), BP_INVALID_ARGUMENT, what);
    t.expect_eq(elapsed, int64_t{7}, std::string("out_elapsed_ns after ") + what);
  };
  refused(plain.get(), second.get(), "a start without timing");
  refused(blank.get(), second.get(), "a start never recorded");
  refused(nullptr, second.get(), "a start of NULL");
  refused(first.get(), nullptr, "an end of NULL");
  int64_t there = 0, back = 0, none = 7;
  t.require_ok(events.elapsed_ns(events.self, first.get(), second.get(), &there), "elapsed_ns");
  t.require_ok(events.elapsed_ns(events.self, second.get(), first.get(), &back),
               "elapsed_ns of the pair turned around");
  t.require_ok(events.elapsed_ns(events.self, first.get(), first.get(), &none),
               "elapsed_ns of one event");
  t.expect_eq(none, int64_t{0}, "the time from an event to itself");
  t.expect(there >= 0 && back <= 0 && (there == 0 || back < 0),
           "the time of the pair turned around is negative: there " + std::to_string(there) +
               ", back " + std::to_string(back));
}

}  // namespace

void add_wait_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "stream",
                {
                    {"status_and_query_of_a_busy_stream_return_at_once",
                     {"STREAM-10", "STREAM-7", "STREAM-12"},
                     status_and_query_of_a_busy_stream_return_at_once},
                    {"the_longest_timeouts_do_not_run_out",
                     {"STREAM-14", "EVENT-2", "DEVICE-8", "MEMORY-10"},
                     the_longest_timeouts_do_not_run_out},
                    {"default_stream_is_the_same_in_every_thread",
                     {"STREAM-4"},
                     default_stream_is_the_same_in_every_thread},
                    {"each_device_has_its_own_default_stream",
                     {"STREAM-4"},
                     each_device_has_its_own_default_stream},
                });
  add_api_cases(cases, "event",
                {
                    {"query_of_a_waiting_event_returns_at_once",
                     {"EVENT-10"},
                     query_of_a_waiting_event_returns_at_once},
                    {"work_waits_for_an_event_of_another_device",
                     {"EVENT-2"},
                     work_waits_for_an_event_of_another_device},
                    {"elapsed_time_of_a_wrong_start_is_refused",
                     {"EVENT-11", "ERROR-3"},
                     elapsed_time_of_a_wrong_start_is_refused},
                });
}

}  // namespace bp::conformance
