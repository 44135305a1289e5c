// The clock of a device is compared with that of the host when a recording starts and when it ends.
// Both moments give a line that maps each time between them, so a clock that runs a little faster
// than the host's does no harm.
#include "recording.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <chrono>

namespace bpt {
namespace {

// One moment on the clock of a device, and in nanoseconds since 1970.
struct Moment {
  int64_t device_ns = 0;
  int64_t unix_ns = 0;
};

int64_t steady_now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Moment moment_of(const bp_target* target) {
  Moment moment;
  int64_t host_ns = 0, error_ns = 0;
  check(target->profiler->calibrate(target->profiler->self, target->device, &moment.device_ns,
                                    &host_ns, &error_ns),
        "profiler.calibrate");
  const int64_t before_ns = steady_now_ns(), unix_ns = c10::getTime();
  moment.unix_ns = host_ns + unix_ns - before_ns / 2 - steady_now_ns() / 2;
  return moment;
}

int64_t map(int64_t device_ns, const Moment& from, const Moment& to) {
  const double span = static_cast<double>(to.device_ns - from.device_ns);
  const double rate = span > 0 ? static_cast<double>(to.unix_ns - from.unix_ns) / span : 1;
  return from.unix_ns +
         static_cast<int64_t>(static_cast<double>(device_ns - from.device_ns) * rate);
}

}  // namespace

// One device that is recorded. The sink fills it from the threads of the plugin.
struct Recording::Source {
  c10::DeviceIndex index;
  const bp_target* target;
  Moment start;
  std::mutex mutex;
  std::vector<DeviceRecord> records;  // With the times of the device's clock.
  uint64_t dropped_count = 0;

  static void sink(void* user_data, const bp_activity* activity) {
    auto& own = *static_cast<Source*>(user_data);
    const std::lock_guard lock(own.mutex);
    if (activity->kind == BP_ACTIVITY_DROPPED) {
      own.dropped_count += activity->bytes;
      return;
    }
    own.records.push_back({activity->name != nullptr ? activity->name : "", own.index,
                           activity->stream, activity->start_ns, activity->end_ns,
                           activity->external_correlation, activity->bytes, activity->flops,
                           activity->kind});
  }
};

Recording::Recording() = default;
Recording::~Recording() { stop(); }

void Recording::begin(c10::DeviceIndex index) {
  auto own = std::make_unique<Source>();
  own->index = index;
  own->target = device_at(index).target;
  own->start = moment_of(own->target);
  bp_profile_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_PROFILE_DESC;
  desc.sink = &Source::sink;
  desc.user_data = own.get();
  const bp_profiler_ops* table = own->target->profiler;
  check(table->start(table->self, own->target->device, &desc), "profiler.start");
  sources_.push_back(std::move(own));
}

void Recording::start() {
  stop();
  for (c10::DeviceIndex i = 0; i < device_count() && is_open(); ++i) {
    try {
      begin(i);
    } catch (const c10::Error& error) {
      problems_.push_back(c10::str("The work of bp:", static_cast<int>(i),
                                   " is not in this profile: ", error.what_without_backtrace(),
                                   ". If its events have times, torch.autograd.profiler.profile("
                                   "use_device=\"bp\") shows the times of operators."));
    }
  }
  set_tables();
}

void Recording::end(Source& source) {
  const bp_target* target = source.target;
  check(target->profiler->stop(target->profiler->self, target->device, UINT64_MAX),
        "profiler.stop");
  const Moment last = moment_of(target);
  for (DeviceRecord& record : source.records) {
    record.start_ns = map(record.start_ns, source.start, last);
    record.end_ns = map(record.end_ns, source.start, last);
    records_.push_back(std::move(record));
  }
  if (source.dropped_count == 0) return;
  problems_.push_back(c10::str("The plugin of bp:", static_cast<int>(source.index), " lost ",
                               source.dropped_count, " records, because a buffer was full."));
}

void Recording::stop() {
  auto sources = std::exchange(sources_, {});
  set_tables();
  for (auto& source : sources) {
    if (!is_open()) return;  // Unloading a plugin has ended its recording.
    try {
      end(*source);
    } catch (const c10::Error& error) {
      problems_.push_back(c10::str("The profile of bp:", static_cast<int>(source->index),
                                   " is not complete: ", error.what_without_backtrace()));
      // The plugin may still call the sink, so that its data is never freed.
      static_cast<void>(source.release());
    }
  }
}

void Recording::set_tables() {
  auto tables = std::make_shared<Tables>();
  for (const auto& source : sources_) {
    const bp_profiler_ops* table = source->target->profiler;
    const bool is_known =
        std::ranges::any_of(*tables, [&](const auto* other) { return other->self == table->self; });
    if (!is_known) tables->push_back(table);
  }
  const std::lock_guard lock(mutex_);
  tables_ = std::move(tables);
}

std::shared_ptr<const Recording::Tables> Recording::tables() const {
  const std::lock_guard lock(mutex_);
  return is_open() ? tables_ : nullptr;
}

void Recording::push(uint64_t origin) {
  if (const auto all = tables()) {
    for (const bp_profiler_ops* table : *all) table->push_correlation(table->self, origin);
  }
}

// A thread that pushed before the start has nothing to pop, which the plugin refuses.
void Recording::pop() {
  if (const auto all = tables()) {
    for (const bp_profiler_ops* table : *all) table->pop_correlation(table->self);
  }
}

}  // namespace bpt
