// Cases for what launch() may not do: allocate device memory, or leave something behind. There is
// one case of each kind for every op.
#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include "conformance/cases/engine/launch_watch.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_flight.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/resources.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

// Calls check(row) for the first row of each dtype for which it returns true.
template <typename Check>
void for_each_dtype(Context& t, const OpCases& rows, size_t most, Check check) {
  std::set<std::string> seen;
  for (const OpCase& row : rows) {
    if (!is_listed(t, row) || seen.count(row.dtype) != 0 || seen.size() == most) continue;
    t.begin_part(row.id());
    if (check(row)) seen.insert(row.dtype);
  }
  if (seen.empty()) {
    t.not_supported("the backend has no kernel for these calls that takes tensors by strides");
  }
  t.metric("calls", static_cast<double>(seen.size()));
}

// ---- Device memory ----------------------------------------------------------------------------

// Launches several times while the stream waits, if it can. Returns the bytes by which free memory
// was less after the launches than before; 0 if it was not.
uint64_t bytes_taken(Context& t, Flight& flight, bool can_hold) {
  constexpr int kLaunches = 4;
  flight.prepare(Poison::kNan);
  finish(t, flight.stream());
  std::unique_ptr<Gate> gate;
  if (can_hold) {
    gate = std::make_unique<Gate>(t);
    gate->hold(flight.stream());
  }
  const uint64_t before = free_device_bytes(t);
  bp_status status = BP_OK;
  for (int i = 0; i < kLaunches && status == BP_OK; ++i) status = flight.launch();
  const std::string text = status == BP_OK ? "" : bp_error_text();
  const uint64_t after = free_device_bytes(t);
  if (gate != nullptr) gate->open();
  static_cast<void>(flight.land(status, text));
  return before - std::min(before, after);
}

// Other processes use a device too, so only memory that is taken each time counts. The first
// launches may load what the driver loads once.
void launch_allocates_no_device_memory(Context& t, const OpCases& rows) {
  if (!shows_allocations(t)) {
    t.not_supported("memory_info() does not show each allocation at once");
  }
  const bool can_hold = can_hold_streams(t);
  for_each_dtype(t, rows, 2, [&](const OpCase& row) {
    Flight flight(t, row, CallData(row, t.seed()));
    if (flight.kernel() == nullptr || !flight.is_direct()) return false;
    static_cast<void>(bytes_taken(t, flight, false));
    std::array<uint64_t, 4> taken{};
    for (uint64_t& bytes : taken) {
      bytes = bytes_taken(t, flight, can_hold);
      if (bytes == 0) return true;
    }
    t.add({row.id() + ": four launches took " + std::to_string(taken.back()) +
               " bytes of device memory",
           "allocates", "KERNEL-1"});
    return true;
  });
}

// ---- Leaks ------------------------------------------------------------------------------------

constexpr int kWarmUps = 16, kLaunches = 24;

void launch_many(Context& t, Flight& flight, int count) {
  for (int i = 0; i < count; ++i) t.require_ok(flight.launch(), "launch");
  finish(t, flight.stream());
}

// What the process and the device hold after some launches.
struct Moment {
  Resources process;
  uint64_t free_device_bytes = 0;
};

// Returns what grew by at least one for each launch; "" if nothing did.
std::string growth(const Moment& before, const Moment& after) {
  const auto grown = [&](int64_t Resources::*what, int64_t least, const char* name) {
    const int64_t count = after.process.*what - before.process.*what;
    return count < least ? "" : std::to_string(count) + name;
  };
  std::string text = grown(&Resources::descriptors, kLaunches, " descriptors");
  if (text.empty()) text = grown(&Resources::threads, kLaunches, " threads");
  if (text.empty() && after.free_device_bytes < before.free_device_bytes) {
    text = std::to_string(before.free_device_bytes - after.free_device_bytes) +
           " bytes of device memory";
  }
  if (text.empty()) text = grown(&Resources::memory_bytes, 8 * kLaunches, " bytes of host memory");
  return text;
}

// The allocator of the process keeps freed memory for each thread, up to a limit, and drivers keep
// what they use again. A leak goes on in each round of launches.
void launches_leave_nothing(Context& t, const OpCases& rows) {
  if (has_layers(t)) t.not_supported("layers in front of the backend keep records of launches");
  constexpr int kRounds = 200, kEnoughRounds = 100, kQuietRounds = 2;
  constexpr std::chrono::seconds kPatienceForLeaks{10};
  const bool counts_device = shows_allocations(t);
  for_each_dtype(t, rows, 1, [&](const OpCase& row) {
    Flight flight(t, row, CallData(row, t.seed()));
    if (flight.kernel() == nullptr) return false;
    flight.prepare(Poison::kNan);
    launch_many(t, flight, kWarmUps);
    const auto take = [&] {
      return Moment{resources_in_use(), counts_device ? free_device_bytes(t) : 0};
    };
    Moment before = take();
    std::string left;
    int rounds = 0, quiet_rounds = 0;
    const auto start = std::chrono::steady_clock::now();
    const auto has_time = [&] {
      return std::chrono::steady_clock::now() - start < kPatienceForLeaks;
    };
    const auto goes_on = [&] { return quiet_rounds < kQuietRounds + rounds / 10; };
    while (goes_on() && rounds < kRounds && (rounds == 0 || has_time())) {
      launch_many(t, flight, kLaunches);
      const Moment after = take();
      const std::string grown = growth(before, after);
      before = after;
      ++rounds;
      if (grown.empty()) {
        ++quiet_rounds;
      } else {
        left = grown;
      }
    }
    const bool is_leak = goes_on() && !left.empty();
    const std::string text = row.id() + ": each " + std::to_string(kLaunches) +
                             " launches left more behind, such as " + left;
    if (is_leak && rounds >= kEnoughRounds) {
      t.add({text, "leak", "KERNEL-9"});
    } else if (is_leak && rounds > kQuietRounds) {
      t.quality_warning(text + ", in the " + std::to_string(rounds) +
                        " rounds for which there was time");
    }
    require_right(t, row, flight.land(BP_OK, ""));
    return true;
  });
}

}  // namespace

void require_right(Context& t, const OpCase& row, const Verdict& verdict) {
  const bool accumulates = std::ranges::any_of(row.tensors, [](const TensorArgument& argument) {
    return argument.role == Role::kInOut || !argument.alias.empty();
  });
  if (accumulates || verdict.is_right()) return;
  t.fail({row.id() + ": " + verdict.message, verdict.cause, "KERNEL-8"});
}

void add_launch_rules(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(
      cases, rows, group,
      {"launch_allocates_no_device_memory", {"KERNEL-1"}, launch_allocates_no_device_memory});
  add_promise(cases, rows, group,
              {"launches_leave_nothing", {"KERNEL-9"}, launches_leave_nothing, Tier::kQuick});
}

}  // namespace bp::conformance
