// One rank of a measurement. Calls are timed in groups that are submitted together behind a
// barrier, so that the time of a wait counts once. Rank 0 chooses how many calls a group has, from
// the time of the first calls, and the others read it from the store.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "conformance/dist/bandwidth.hpp"
#include "conformance/dist/check_run.hpp"
#include "conformance/dist/jobs.hpp"

namespace bp::conformance::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kGroups = 7;
constexpr int kWarmCalls = 3;
constexpr double kGroupSeconds = 0.03;
constexpr double kMostCalls = 100;

class BandwidthRun {
 public:
  explicit BandwidthRun(const RankJob& job)
      : job_(job),
        task_(job.task),
        seat_(job.backend, task_, job.store),
        timeout_ns_(nanoseconds_of(task_.timeout_seconds)),
        patience_ns_(nanoseconds_of(task_.timeout_seconds + task_.grace_seconds)) {}

  void run() {
    const bp_process_group_ops& ops = job_.backend.table(task_.table);
    job_.speaker.say("begin", {{"text", "create"}});
    const Answer made =
        seat_.create({&ops, "group/bandwidth/", task_.rank, task_.world_size, timeout_ns_}, group_);
    job_.speaker.say("create", {{"status", made.status}, {"text", made.text}});
    if (!made.is_ok()) return;
    has_barrier_ = !confirmed_claims(group_, {{BP_COLLECTIVE_BARRIER, 0, 0}}).empty();
    for (const Claim& claim : timed_claims()) {
      if (confirmed_claims(group_, {claim}).empty()) continue;
      for (const uint64_t size : listed_sizes(task_.sizes)) {
        measure(claim, size, false);
        if (is_timed_in_place(claim.kind)) measure(claim, size, true);
      }
    }
  }

 private:
  void measure(const Claim& claim, uint64_t size_bytes, bool is_in_place) {
    const Check check{.claim = claim,
                      .count = count_of_size(claim, size_bytes, task_.world_size),
                      .is_in_place = is_in_place};
    if (check.count == 0) return;
    job_.speaker.say("begin", {{"text", check.text()}});
    const Place place{seat_,      group_,      job_.store,  task_.rank, task_.world_size,
                      task_.seed, timeout_ns_, patience_ns_};
    Call call(place, check, true);
    const int calls = agreed_calls(seconds_of_group(call, kWarmCalls) / kWarmCalls);
    std::vector<double> times;
    for (int i = 0; i < kGroups; ++i) times.push_back(seconds_of_group(call, calls) / calls);
    call.write();
    seconds_of_group(call, 1);
    const Call::Found found = call.look();
    job_.speaker.say("size", {{"kind", claim.kind},
                              {"size", size_bytes},
                              {"count", check.count},
                              {"in_place", is_in_place},
                              {"seconds", times},
                              {"wrong", found.wrong_count},
                              {"text", found.text}});
  }

  int agreed_calls(double seconds) {
    const std::string key = "suite/calls/" + std::to_string(next_key_++);
    if (task_.rank == 0) {
      const double calls = std::clamp(kGroupSeconds / std::max(seconds, 1e-9), 1.0, kMostCalls);
      job_.store.put(key, std::to_string(std::lround(calls)));
    }
    std::string text;
    if (!job_.store.get(key, patience_ns_, text)) throw RankError("rank 0 chose no calls");
    return std::stoi(text);
  }

  double seconds_of_group(const Call& call, int calls) {
    if (has_barrier_) {
      const bp_collective_call barrier = call_of(seat_, group_, BP_COLLECTIVE_BARRIER, 0, 0, 0);
      require(seat_.submit(group_, {&barrier, 1}), "the barrier");
      require(seat_.synchronize(patience_ns_), "the barrier");
    }
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) require(seat_.submit(group_, call.calls()), "submit");
    require(seat_.synchronize(patience_ns_), "synchronize");
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void require(const Answer& answer, const char* what) {
    if (!answer.is_ok()) throw RankError(std::string(what) + ": " + answer.text);
  }

  const RankJob& job_;
  const RankTask& task_;
  Seat seat_;
  const uint64_t timeout_ns_, patience_ns_;
  Group group_;
  bool has_barrier_ = false;
  uint64_t next_key_ = 0;
};

}  // namespace

void run_bandwidth(const RankJob& job) { BandwidthRun(job).run(); }

}  // namespace bp::conformance::dist
