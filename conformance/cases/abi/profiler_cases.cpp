// Cases for api/include/backplane/profiler.h. Work is copies and fills, which every device has.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

const bp_profiler_ops& profiler_table(Context& t) {
  if (bp_target_has_table(&t.target(), BP_STRUCT_PROFILER_OPS) == 0) {
    t.not_supported("the device has no profiler");
  }
  return *t.target().profiler;
}

// A record with a name that outlives it.
struct Record {
  bp_activity data;
  std::string name;
};

// A profile of the device. The destructor stops it if it still runs.
class Profile {
 public:
  explicit Profile(Context& t, const std::vector<bp_activity_kind>& kinds = {})
      : context_(t), ops_(profiler_table(t)) {
    const bp_profile_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_PROFILE_DESC,
                               .sink = take,
                               .user_data = this,
                               .kind_count = kinds.size(),
                               .kinds = kinds.data()};
    t.require_ok(ops_.start(ops_.self, t.target().device, &desc), "start");
  }
  ~Profile() { static_cast<void>(ops_.stop(ops_.self, context_.target().device, UINT64_MAX)); }
  Profile(const Profile&) = delete;

  void stop() {
    context_.require_ok(ops_.stop(ops_.self, context_.target().device, UINT64_MAX), "stop");
  }
  void flush() { context_.require_ok(ops_.flush(ops_.self, context_.target().device), "flush"); }

  std::vector<Record> records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }

 private:
  static void take(void* self, const bp_activity* activity) {
    auto& profile = *static_cast<Profile*>(self);
    const std::lock_guard lock(profile.mutex_);
    profile.records_.push_back(
        {*activity, activity->name == nullptr ? "" : std::string(activity->name)});
  }

  Context& context_;
  const bp_profiler_ops& ops_;
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

void fill(Context& t, bp_stream* stream, const bp_buffer_ref& range) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const uint8_t byte = 7;
  t.require_ok(memory.fill(memory.self, stream, &range, &byte, 1), "fill");
}

void copy(Context& t, bp_stream* stream, const bp_buffer_ref& to, const bp_buffer_ref& from) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.copy(memory.self, stream, &to, &from), "copy");
}

uint64_t count_of(const std::vector<Record>& records, bp_activity_kind kind) {
  return static_cast<uint64_t>(std::ranges::count_if(
      records, [&](const Record& record) { return record.data.kind == kind; }));
}

void work_leaves_records(Context& t) {
  profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  fill(t, stream.get(), range(b, 0, kSize));
  finish(t, stream.get());
  Profile profile(t);
  fill(t, stream.get(), range(a, 0, kSize));
  copy(t, stream.get(), range(b, 0, kSize), range(a, 0, kSize));
  profile.stop();
  const std::vector<Record> records = profile.records();
  t.expect_eq(count_of(records, BP_ACTIVITY_FILL), uint64_t{1}, "records of the fill");
  t.expect_eq(count_of(records, BP_ACTIVITY_COPY), uint64_t{1}, "records of the copy");
  for (const auto& [data, name] : records) {
    t.expect(data.struct_type == BP_STRUCT_ACTIVITY && data.struct_size >= sizeof(bp_activity),
             "a record is a bp_activity");
    t.expect(!name.empty(), "a record has a name");
    t.expect_eq(data.device, t.target().device, "the device of a record");
    t.expect_eq(data.stream, stream.get(), "the stream of a record");
    t.expect(data.start_ns <= data.end_ns, "a record ends after its start");
    t.expect(data.bytes == 0 || data.bytes >= kSize, "the bytes of a record");
  }
}

void records_of_a_stream_do_not_overlap(Context& t) {
  profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, 16 * kSize), b = make_buffer(t, 16 * kSize);
  Profile profile(t);
  const auto submit = [&] {
    for (int i = 0; i < 50; ++i) {
      copy(t, stream.get(), range(a, 0, 16 * kSize), range(b, 0, 16 * kSize));
    }
  };
  std::thread other(submit);
  submit();
  other.join();
  profile.stop();
  std::vector<Record> records = profile.records();
  t.require(count_of(records, BP_ACTIVITY_COPY) == 100, "a record of each copy");
  std::ranges::sort(records, {}, [](const Record& record) { return record.data.start_ns; });
  for (size_t i = 1; i < records.size(); ++i) {
    t.expect(records[i - 1].data.end_ns <= records[i].data.start_ns,
             "a record begins after the one before it has ended");
  }
}

void second_start_is_refused(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  const bp_profile_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PROFILE_DESC,
                             .sink = [](void*, const bp_activity*) {}};
  {
    Profile profile(t);
    t.expect_refused(profiler.start(profiler.self, t.target().device, &desc), BP_ALREADY_EXISTS,
                     "start while the device is recorded");
    fill(t, stream.get(), range(a, 0, kSize));
    profile.stop();
    t.expect_eq(profile.records().size(), size_t{1},
                "the number of records of the first profile, which continues");
  }
  Profile again(t);
  fill(t, stream.get(), range(a, 0, kSize));
  again.stop();
  t.expect_eq(again.records().size(), size_t{1}, "records after a second start");
}

// stop() waits for submitted work, delivers its records, and ends the profile.
void stop_is_the_end(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  t.require_ok(profiler.stop(profiler.self, t.target().device, UINT64_MAX),
               "stop without a profile");
  Profile profile(t);
  Gate gate(t);
  gate.hold(stream.get());
  for (int i = 0; i < 10; ++i) fill(t, stream.get(), range(a, 0, kSize));
  t.expect_eq(profile.records().size(), size_t{0}, "records of work that is held back");
  gate.open();
  profile.stop();
  t.expect_eq(profile.records().size(), size_t{10}, "records when stop() returns");
  for (int i = 0; i < 10; ++i) fill(t, stream.get(), range(a, 0, kSize));
  finish(t, stream.get());
  profile.flush();
  t.expect_eq(profile.records().size(), size_t{10}, "records of later work");
}

// A profile goes on after a stop() that ran out of time.
void stop_can_run_out_of_time(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  bp_device* const device = t.target().device;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  Profile profile(t);
  Gate gate(t);
  gate.hold(stream.get());
  fill(t, stream.get(), range(a, 0, kSize));
  for (const uint64_t timeout_ns : {uint64_t{0}, kMomentNs}) {
    t.expect_refused(profiler.stop(profiler.self, device, timeout_ns), BP_TIMEOUT,
                     "stop while the work is held back");
  }
  const bp_profile_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PROFILE_DESC,
                             .sink = [](void*, const bp_activity*) {}};
  t.expect_refused(profiler.start(profiler.self, device, &desc), BP_ALREADY_EXISTS,
                   "start after a stop that ran out of time");
  fill(t, stream.get(), range(a, 0, kSize));
  gate.open();
  t.require_ok(profiler.stop(profiler.self, device, kTimeoutNs), "stop again");
  t.expect_eq(profile.records().size(), size_t{2}, "records before and behind the timeouts");
}

void flush_delivers_what_has_completed(Context& t) {
  profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  Profile profile(t);
  for (int i = 0; i < 10; ++i) fill(t, stream.get(), range(a, 0, kSize));
  finish(t, stream.get());
  profile.flush();
  t.expect_eq(profile.records().size(), size_t{10}, "records after flush()");
}

void kinds_are_chosen(Context& t) {
  profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  Profile profile(t, {BP_ACTIVITY_KERNEL, BP_ACTIVITY_COPY});
  fill(t, stream.get(), range(a, 0, kSize));
  copy(t, stream.get(), range(b, 0, kSize), range(a, 0, kSize));
  profile.stop();
  const std::vector<Record> records = profile.records();
  t.expect(records.size() == 1 && records[0].data.kind == BP_ACTIVITY_COPY, "copies alone");
}

void unknown_kinds_are_refused(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  for (const bp_activity_kind kind : {0u, 64u, 0x7FFF0001u, UINT32_MAX}) {
    const bp_activity_kind kinds[] = {BP_ACTIVITY_COPY, kind};
    const bp_profile_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_PROFILE_DESC,
                               .sink = [](void*, const bp_activity*) {},
                               .kind_count = 2,
                               .kinds = kinds};
    t.expect_refused(profiler.start(profiler.self, t.target().device, &desc), BP_UNSUPPORTED,
                     "start with kind " + std::to_string(kind));
  }
  Profile profile(t);  // A start that was refused records nothing.
}

void correlation_ids_nest(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  Profile profile(t);
  const auto push = [&](uint64_t id) {
    t.require_ok(profiler.push_correlation(profiler.self, id), "push_correlation");
  };
  const auto pop = [&] {
    t.require_ok(profiler.pop_correlation(profiler.self), "pop_correlation");
  };
  const auto work = [&] { fill(t, stream.get(), range(a, 0, kSize)); };
  bp_status elsewhere = BP_OK;
  work();  // The id is 0.
  push(11);
  work();  // The id is 11.
  push(12);
  work();  // The id is 12.
  std::thread([&] {
    work();  // The id is 0, because ids are per thread.
    elsewhere = profiler.pop_correlation(profiler.self);
    bp_error_clear();
  }).join();
  pop();
  work();  // The id is 11.
  pop();
  work();  // The id is 0.
  t.expect_refused(profiler.pop_correlation(profiler.self), BP_INVALID_ARGUMENT,
                   "pop without a push");
  t.expect_eq(elsewhere, BP_INVALID_ARGUMENT, "pop of an id that another thread pushed");
  profile.stop();
  std::vector<uint64_t> ids;
  std::vector<Record> records = profile.records();
  std::ranges::sort(records, {}, [](const Record& record) { return record.data.start_ns; });
  for (const Record& record : records) ids.push_back(record.data.external_correlation);
  t.expect(ids == std::vector<uint64_t>{0, 11, 12, 0, 11, 0}, "the ids of the records");
}

int64_t host_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Two moments map the times of records to the host's clock. On that clock they lie between the
// moments when the host submitted the work and when it saw the end of the work.
void two_moments_map_all_times(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, kSize);
  struct Moment {
    int64_t device_ns, host_ns, error_ns;
  } first{}, second{};
  const auto calibrate = [&](Moment& m) {
    t.require_ok(
        profiler.calibrate(profiler.self, t.target().device, &m.device_ns, &m.host_ns, &m.error_ns),
        "calibrate");
    t.require(m.error_ns >= 0, "error_ns is not negative");
  };
  Profile profile(t);
  calibrate(first);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t before_ns = host_now_ns();
  fill(t, stream.get(), range(a, 0, kSize));
  finish(t, stream.get());
  const int64_t after_ns = host_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  calibrate(second);
  profile.stop();
  t.require(second.device_ns > first.device_ns && second.host_ns > first.host_ns,
            "later moments are later on both clocks");
  t.require(profile.records().size() == 1, "one record");
  const double rate = static_cast<double>(second.host_ns - first.host_ns) /
                      static_cast<double>(second.device_ns - first.device_ns);
  const auto to_host = [&](int64_t device_ns) {
    return static_cast<double>(first.host_ns) +
           rate * static_cast<double>(device_ns - first.device_ns);
  };
  const bp_activity activity = profile.records()[0].data;
  const auto slack = static_cast<double>(first.error_ns + second.error_ns + 1000);
  t.expect(to_host(activity.start_ns) >= static_cast<double>(before_ns) - slack,
           "the work began after it was submitted");
  t.expect(to_host(activity.end_ns) <= static_cast<double>(after_ns) + slack,
           "the work ended before the host saw its end");
}

void wrong_arguments_are_refused(Context& t) {
  const bp_profiler_ops& profiler = profiler_table(t);
  bp_device* const device = t.target().device;
  bp_profile_desc desc{.struct_size = sizeof(desc),
                       .struct_type = BP_STRUCT_PROFILE_DESC,
                       .sink = [](void*, const bp_activity*) {}};
  int64_t ns = 7;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(profiler.start(profiler.self, nullptr, &desc), "start: device");
  refused(profiler.start(profiler.self, device, nullptr), "start: desc");
  refused(profiler.stop(profiler.self, nullptr, UINT64_MAX), "stop: device");
  refused(profiler.flush(profiler.self, nullptr), "flush: device");
  refused(profiler.calibrate(profiler.self, nullptr, &ns, &ns, &ns), "calibrate: device");
  refused(profiler.calibrate(profiler.self, device, nullptr, &ns, &ns), "calibrate: out_device_ns");
  t.expect_eq(ns, int64_t{7}, "out parameters after a failure");
  desc.kind_count = 1;
  refused(profiler.start(profiler.self, device, &desc), "start: kinds");
  desc.kind_count = 0;
  desc.sink = nullptr;
  refused(profiler.start(profiler.self, device, &desc), "start: sink");
}

}  // namespace

void add_profiler_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "profiler",
      {
          {"work_leaves_records", {"PROFILER-1"}, work_leaves_records},
          {"records_of_a_stream_do_not_overlap",
           {"PROFILER-2"},
           records_of_a_stream_do_not_overlap},
          {"second_start_is_refused", {"PROFILER-3"}, second_start_is_refused},
          {"stop_is_the_end", {"PROFILER-4"}, stop_is_the_end},
          {"stop_can_run_out_of_time", {"PROFILER-7"}, stop_can_run_out_of_time},
          {"flush_delivers_what_has_completed", {"PROFILER-1"}, flush_delivers_what_has_completed},
          {"kinds_are_chosen", {"PROFILER-1"}, kinds_are_chosen},
          {"unknown_kinds_are_refused", {"PROFILER-8"}, unknown_kinds_are_refused},
          {"correlation_ids_nest", {"PROFILER-5"}, correlation_ids_nest},
          {"two_moments_map_all_times", {"PROFILER-6"}, two_moments_map_all_times},
          {"wrong_arguments_are_refused", {"ERROR-1", "ERROR-3"}, wrong_arguments_are_refused},
      });
}

}  // namespace bp::conformance
