#include "conformance/perf/timing.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>

#include "conformance/perf/preemption.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/perf/yardstick.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGroupSeconds = 2e-3;
constexpr double kMostSeconds = 8;     // The time limit for the launches of one slow call.
constexpr size_t kFewestSlowRuns = 5;  // The fewest timed launches of a slow call.
constexpr size_t kOfEach = 20, kFewestOfEach = 12;  // The numbers of launches after a change, and
                                                    // of launches after none.
constexpr double kRepeatSeconds = 0.05, kMostRepeatSeconds = 1;
constexpr double kCachedShare = 0.1, kSureSigmas = 4;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string status_text(bp_status status) {
  const std::string text = std::string(bp_status_name(status)) + ": " + bp_error_text();
  bp_error_clear();
  return text;
}

// Returns those lines of the host's explanation of a call that are about kernels of the backend.
// The first line names the call. The list leaves fallbacks out, because a fallback is not the
// backend's kernel.
std::string own_reasons(const std::string& explained) {
  std::istringstream lines(explained);
  std::string line, reasons;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    line.erase(0, line.find_first_not_of(' '));
    const bool is_fallback =
        line.starts_with("decomposition:") || line.starts_with("host fallback:");
    if (line.empty() || is_fallback) continue;
    reasons += (reasons.empty() ? "" : "; ") + line;
  }
  return reasons.empty() ? explained : reasons;
}

// Returns whether there are enough quiet groups, or the time for the call is used up.
bool has_enough(GroupTimes& times, double elapsed, const PerfOptions& options) {
  times.mark_quiet();
  double all = 0, quiet = 0;
  for (const GroupTimes::Group& group : times.groups) {
    const double seconds = group.seconds * static_cast<double>(group.launches);
    all += seconds;
    if (group.is_quiet) quiet += seconds;
  }
  const size_t count = times.groups.size();
  if (all >= kMostSeconds && count >= kFewestSlowRuns) return true;
  if (times.quiet_count() >= GroupTimes::kFewest && quiet >= options.min_seconds) return true;
  return count >= GroupTimes::kFewest && elapsed >= options.patience_seconds();
}

bool has_enough_of_both(const RepeatTimes& times, double seconds) {
  const size_t fewer = std::min(times.changed.size(), times.repeated.size());
  return (fewer >= kOfEach && seconds >= kRepeatSeconds) ||
         (fewer >= kFewestOfEach && seconds >= kMostRepeatSeconds);
}

// Launches on set 0, each after a change or after none, as `random` decides.
RepeatTimes time_both(CallSets& sets, Launcher& launcher, std::mt19937_64& random) {
  RepeatTimes times;
  const Clock::time_point start = Clock::now();
  while (!has_enough_of_both(times, since(start))) {
    const bool is_changed = (random() >> 63) != 0;
    if (is_changed) {
      sets.stamp(0, random());
    } else {
      sets.stamp_again(0);
    }
    launcher.wait();
    (is_changed ? times.changed : times.repeated).push_back(launcher.timed(sets.frame(0)));
  }
  return times;
}

}  // namespace

const bp_kernel& native_kernel(Context& t, uint32_t op, const Frame& frame) {
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, op, frame.data(), &choice);
  if (status == BP_UNSUPPORTED) {
    const std::string reasons = bp_error_text();
    bp_error_clear();
    t.not_supported(own_reasons(reasons));
  }
  t.require_ok(status, "bp_kernel_find");
  if (requires_layouts(*choice.kernel)) {
    t.not_supported(std::string(choice.kernel->name) +
                    " takes layouts alone, and the time of a launch by strides would be that of "
                    "the conversions");
  }
  return *choice.kernel;
}

Launcher::Launcher(Context& t, const bp_kernel& kernel, const Frame& frame, bp_stream* stream)
    : t_(t), kernel_(kernel), stream_(stream) {
  uint64_t required = 0, preferred = 0;
  if (kernel.workspace_size != nullptr) {
    const std::vector<uint64_t> words = words_of(frame);
    t.require_ok(
        kernel.workspace_size(&kernel, t.target().device, 0, words.data(), &required, &preferred),
        "workspace_size");
  }
  launch_ = {.device = t.target().device, .stream = stream};
  const uint64_t size = std::max(required, preferred);
  if (size == 0) return;
  workspace_ = make_buffer(t, size);
  launch_.workspace = range(workspace_, 0, size);
}

void Launcher::launch(const std::vector<uint64_t>& words) {
  const bp_status status = kernel_.launch(&kernel_, &launch_, words.data());
  if (status == BP_OK) return;
  t_.fail({"a launch in the middle of the measurement failed: " + status_text(status), "launch",
           "KERNEL-8"});
}

void Launcher::wait() {
  const bp_stream_ops& streams = *t_.target().streams;
  const bp_status status = streams.synchronize(streams.self, stream_, kTimeoutNs);
  if (status == BP_OK) return;
  const std::string text = status_text(status);
  static_cast<void>(streams.clear_failure(streams.self, stream_));
  bp_error_clear();
  t_.fail({"the stream failed while launches were timed: " + text, "stream_failure", "KERNEL-8"});
}

double Launcher::timed(const Frame& frame) { return timed_batch(frame, 1); }

double Launcher::timed_batch(const Frame& frame, int count) {
  const std::vector<uint64_t> words = words_of(frame);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < count; ++i) launch(words);
  wait();
  return since(start) / count;
}

double Launcher::timed_sets(const CallSets& sets, size_t first, size_t count) {
  std::vector<std::vector<uint64_t>> words;
  for (size_t i = 0; i < count; ++i) words.push_back(words_of(sets.frame(first + i)));
  const Clock::time_point start = Clock::now();
  for (const std::vector<uint64_t>& each : words) launch(each);
  wait();
  return since(start) / static_cast<double>(count);
}

GroupTimes time_rotating(CallSets& sets, Launcher& launcher,
                         const std::vector<Yardstick*>& yardsticks, const PerfOptions& options) {
  GroupTimes times;
  uint64_t number = 0;
  const auto stamp_all = [&] {
    for (size_t set = 0; set < sets.count(); ++set) sets.stamp(set, ++number);
    launcher.wait();
  };
  stamp_all();
  std::vector<double> alone;
  for (size_t set = 0; set < sets.count(); ++set) {
    alone.push_back(launcher.timed(sets.frame(set)));
  }
  const double one = std::max(spread_of(std::move(alone)).median, 1e-9);
  const size_t most = std::clamp<size_t>(static_cast<size_t>(kGroupSeconds / one), 1, sets.count());
  const auto round = [&] {
    for (size_t set = 0; set < sets.count(); set += most) {
      GroupTimes::Group& group = times.groups.emplace_back();
      group.launches = std::min(most, sets.count() - set);
      const PreemptionWatch watch;
      group.seconds = launcher.timed_sets(sets, set, group.launches);
      const auto launches = static_cast<double>(group.launches);
      group.was_preempted = watch.was_preempted(group.seconds * launches);
      for (Yardstick* yardstick : yardsticks) group.yardsticks.push_back(yardstick->seconds());
    }
  };
  const Clock::time_point start = Clock::now();
  while (!has_enough(times, since(start), options)) {
    stamp_all();
    round();
  }
  for (size_t set = 0; set < sets.count(); ++set) sets.restore(set, set % 2);
  launcher.wait();
  round();
  times.mark_quiet();
  return times;
}

bool RepeatTimes::is_cached() const {
  const double after_change = spread_of(changed).median, again = spread_of(repeated).median;
  return after_change - again > kCachedShare * after_change &&
         rank_difference(changed, repeated) > kSureSigmas;
}

std::optional<RepeatTimes> time_repeated(CallSets& sets, Launcher& launcher, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (!sets.stamp(0, random())) return std::nullopt;
  launcher.launch(sets.frame(0));
  launcher.wait();
  RepeatTimes times = time_both(sets, launcher, random);
  if (times.is_cached()) times = time_both(sets, launcher, random);
  return times;
}

}  // namespace bp::conformance
