// Cases for launches while their stream waits: launch() returns at once, and its work does not
// begin before that of the stream. There is one case for every op, over few rows of each dtype that
// show many layouts and kinds of shapes.
#include <time.h>

#include <algorithm>
#include <array>
#include <map>

#include "conformance/cases/engine/launch_watch.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_flight.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/resources.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

// A launch needs microseconds of a processor; a compiler needs many milliseconds.
constexpr double kSlowSeconds = 0.05;
constexpr double kSlowRatio = 10;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One launch as the host makes it, and the time of a processor that it took on this thread.
struct Timed {
  double seconds = 0;
  bp_status status = BP_OK;
};
Timed launch_as_host(Context& t, const Flight& flight) {
  const bp_kernel& kernel = *flight.kernel();
  bp_device* const device = t.target().device;
  const double start = thread_seconds();
  Timed timed;
  if (kernel.supports != nullptr) {
    static_cast<void>(kernel.supports(&kernel, device, 0, flight.frame()));
  }
  WorkspaceBytes bytes;
  timed.status = ask_for_workspace(kernel, device, 0, flight.frame(), bytes);
  if (timed.status == BP_OK) timed.status = flight.launch();
  timed.seconds = thread_seconds() - start;
  return timed;
}

// Returns whether the memory of the call has changed while its stream is held. The work must not
// have begun on another stream either, so the default stream ends its work first. A default stream
// that waits for the held stream shows nothing.
bool has_begun(Context& t, Flight& flight) {
  constexpr uint64_t kPatienceNs = 1'000'000'000;
  bp_stream* const other = t.target().default_stream;
  const bp_stream_ops& streams = *t.target().streams;
  const bool is_free = streams.synchronize(streams.self, other, kPatienceNs) == BP_OK;
  bp_error_clear();
  return is_free && flight.has_changed(other);
}

// Returns false if the backend has no kernel for the call that the suite can launch itself.
bool check_wait(Context& t, const OpCase& row) {
  Flight flight(t, row, CallData(row, t.seed()));
  if (flight.kernel() == nullptr || !flight.is_direct()) return false;
  flight.prepare(Poison::kNan);
  finish(t, flight.stream());
  HeldStream held(t, flight.stream());
  std::array<Timed, 3> launches;
  std::string text;
  for (size_t i = 0; i < launches.size(); ++i) {
    Timed& launch = launches[i];
    const auto submit = [&] { return (launch = launch_as_host(t, flight)).status; };
    if (launch_from(t, i == 1 ? From::kNewThread : From::kThisThread, text, submit) == BP_OK) {
      continue;
    }
    if (text.empty()) text = bp_error_text();
    bp_error_clear();
    launches.back() = launch;
    break;
  }
  const bool was_late = held.done();
  const bool is_early = !was_late && !has_layers(t) && has_begun(t, flight);
  held.open();
  require_right(t, row, flight.land(launches.back().status, text));
  const double first = launches[0].seconds, second = launches[1].seconds;
  if (first > kSlowSeconds && first > kSlowRatio * second) {
    // Only the time says so, and other cases may have launched the kernel before.
    t.quality_warning(row.id() + ": the first launch took " + std::to_string(1e3 * first) +
                      " ms of a processor and the second " + std::to_string(1e3 * second) +
                      " ms, as if the first had compiled ([KERNEL-3])");
  } else if (was_late) {
    // Each further call would take as long again.
    t.fail({row.id() + ": launch() did not return while its stream waited for an event", "blocks",
            "KERNEL-3"});
  } else if (is_early) {
    t.add({row.id() + ": memory changed while the stream of the launch waited for an event",
           "order", "STREAM-3"});
  }
  return true;
}

void launch_waits_for_nothing(Context& t, const OpCases& rows) {
  size_t calls = 0;
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    t.begin_part(row.id());
    calls += check_wait(t, row) ? 1 : 0;
  }
  if (calls == 0) {
    t.not_supported("the backend has no kernel for these calls that takes tensors by strides");
  }
  t.metric("calls", static_cast<double>(calls));
}

// Returns a row of each dtype, and three of f32. A device that compiles needs long for each.
OpCases chosen_rows(const OpCases& of_op) {
  std::map<std::string, Group> by_dtype;
  for (const OpCase& row : of_op) by_dtype[row.dtype].push_back(&row);
  OpCases chosen;
  for (const auto& [dtype, group] : by_dtype) {
    const size_t most = dtype == "f32" ? 3 : 1;
    for (const OpCase* row : most_telling(group, most)) chosen.push_back(*row);
  }
  return chosen;
}

}  // namespace

void add_wait_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  std::map<uint32_t, OpCases> by_op;
  for (const OpCase& row : rows) by_op[row.op].push_back(row);
  for (const auto& [op, of_op] : by_op) {
    OpCases chosen = chosen_rows(of_op);
    if (chosen.empty()) continue;
    add_promise_case(
        cases, std::move(chosen), group,
        {"launch_waits_for_nothing", {"KERNEL-3", "STREAM-3"}, launch_waits_for_nothing});
  }
}

}  // namespace bp::conformance
