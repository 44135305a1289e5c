// One rank in a fault: what the victim does, and what every rank says of its calls.
#include <signal.h>

#include <chrono>
#include <set>
#include <thread>

#include "conformance/dist/check_run.hpp"
#include "conformance/dist/fault.hpp"
#include "conformance/dist/holdings.hpp"
#include "conformance/dist/jobs.hpp"

namespace bp::conformance::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kCount = 1000;
constexpr uint64_t kLargeCount = 1 << 20;  // So that a rank dies while a call runs.
constexpr int64_t kSpareThreads = 3;       // By which the pools of one plugin may grow.
constexpr uint64_t kLongFactor = 10;       // The timeout of a group whose calls have their own.

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class FaultRun {
 public:
  explicit FaultRun(const RankJob& job)
      : job_(job),
        task_(job.task),
        fault_(find_fault(task_.fault)->fault),
        ops_(job.backend.table(task_.table)),
        seat_(job.backend, task_, job.store),
        is_victim_(task_.rank == task_.victim),
        timeout_ns_(nanoseconds_of(task_.timeout_seconds)),
        patience_ns_(nanoseconds_of(task_.timeout_seconds + task_.grace_seconds)) {}

  void run() {
    if (!warm_up()) return;
    const Holdings before = Holdings::settled();
    if (create()) act();
    shared_ = shared_memory_in_use();
    job_.store.put(ended_key(task_.rank), "");
    job_.speaker.say("ended", nlohmann::json::object());
    wait_for_others();
    seat_.clear_failure();
    const auto start = Clock::now();
    const Answer destroyed = group_.destroy();
    say("destroy", destroyed, start);
    again();
    const int64_t spare_threads = kSpareThreads * job_.backend.plugin_count();
    const Holdings after = before.awaited(spare_threads);
    job_.speaker.say("left",
                     {{"left", after.more_than(before, spare_threads)}, {"shared", shared_}});
  }

 private:
  void say(const char* step, const Answer& answer, Clock::time_point start) {
    say_step(step, answer, seconds_since(start), true);
  }
  void say_step(const char* step, const Answer& answer, double seconds, bool is_right) {
    job_.speaker.say("step", {{"step", step},
                              {"status", answer.status},
                              {"text", answer.text},
                              {"seconds", seconds},
                              {"is_right", is_right}});
  }
  static std::string ended_key(uint32_t rank) { return "suite/ended/" + std::to_string(rank); }

  Place place(Group& group, uint32_t rank, uint32_t world_size) {
    return {seat_, group, job_.store, rank, world_size, task_.seed, timeout_ns_, patience_ns_};
  }

  // Makes a group and runs a check in it, which also opens what the backend opens only once. Groups
  // of these ranks may be unsupported: then nothing more is to be tried.
  bool warm_up() {
    Group group;
    const auto start = Clock::now();
    const Answer made = seat_.create({&ops_, "group/warm/", task_.rank, task_.world_size,
                                      nanoseconds_of(task_.timeout_seconds * kLongFactor)},
                                     group);
    say("warm", made, start);
    if (!made.is_ok()) return false;
    if (const std::string reason = choose_checks(group); !reason.empty()) {
      job_.speaker.say("skip", {{"text", reason}});
      return false;
    }
    const CheckResult result = run_check(place(group, task_.rank, task_.world_size), check_, 0);
    if (result.outcome != Outcome::kPass) {
      say("warm", {BP_INTERNAL, result.text}, start);
      return false;
    }
    static_cast<void>(group.destroy());
    return true;
  }

  // Fills the check of this rank. Returns why the fault cannot be tried, or "".
  std::string choose_checks(const Group& group) {
    check_.claim = {BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, BP_F32};
    check_.count = fault_ == Fault::kDeadInCall ? kLargeCount : kCount;
    if (fault_ == Fault::kOtherRoot) check_.claim = {BP_COLLECTIVE_BROADCAST, 0, BP_F32};
    Check other = check_;
    switch (fault_) {
      case Fault::kOtherCount:
        other.count = kCount - 1;
        break;
      case Fault::kOtherDtype:
        other.claim.dtype = BP_I32;
        break;
      case Fault::kOtherReduction:
      case Fault::kOtherOrder:
        other.claim.reduction = BP_REDUCTION_MAX;
        break;
      case Fault::kOtherKind:
        other.claim = {BP_COLLECTIVE_BROADCAST, 0, BP_F32};
        break;
      case Fault::kOtherRoot:
        other.root = 1;
        break;
      default:
        break;
    }
    for (const Claim& claim : {check_.claim, other.claim}) {
      if (confirmed_claims(group, {claim}).empty()) {
        return "supports() refuses " + claim_text(claim);
      }
    }
    other_ = other;
    return "";
  }

  bool create() {
    if (fault_ == Fault::kNeverComes && is_victim_) return false;
    const bool is_other_size = fault_ == Fault::kOtherSize && is_victim_;
    const uint64_t factor = fault_ == Fault::kAbsent ? kLongFactor : 1;
    const auto start = Clock::now();
    const Answer made =
        seat_.create({&ops_, "group/fault/", task_.rank, task_.world_size + (is_other_size ? 1 : 0),
                      timeout_ns_ * factor},
                     group_);
    say("create", made, start);
    return made.is_ok();
  }

  void act() {
    const bool is_failing_create = fault_ == Fault::kOtherSize || fault_ == Fault::kNeverComes;
    if (is_failing_create) return;
    const Check& check = is_mismatch(fault_) && is_victim_ ? other_ : check_;
    Place at = place(group_, task_.rank, task_.world_size);
    // The connections between the ranks are open when the fault comes.
    const CheckResult first = run_check(at, check_, 1);
    if (first.outcome != Outcome::kPass) {
      return say_step("stream", {BP_INTERNAL, "before the fault: " + first.text}, 0, true);
    }
    if (is_victim_) have_fault();
    if (fault_ == Fault::kOtherOrder) return call_twice(at);
    std::thread aborter;
    const bool aborts =
        fault_ == Fault::kAbort && task_.rank == (task_.victim + 1) % task_.world_size;
    if (aborts) aborter = std::thread([this] { abort(); });
    Call call(at, check, false);
    const auto start = Clock::now();
    do {
      call_once(call);
    } while (fault_ == Fault::kDeadInCall && is_running_ &&
             seconds_since(start) * 1e9 < static_cast<double>(patience_ns_));
    if (aborter.joinable()) aborter.join();
    say_status();
    if (fault_ == Fault::kAbort) {
      seat_.clear_failure();
      const auto again = Clock::now();
      const Answer later = seat_.submit(group_, call.calls());
      say("later", later, again);
    }
  }

  // What the victim does before its call.
  void have_fault() {
    switch (fault_) {
      case Fault::kLate:
        return sleep_for(task_.timeout_seconds / 4);
      case Fault::kAbsent:
      case Fault::kAbort:
        return wait_for_others();
      case Fault::kStopped:
        job_.speaker.say("stopped", nlohmann::json::object());
        raise(SIGSTOP);  // The supervisor continues it when the other ranks have ended.
        return;
      case Fault::kDead:
        raise(SIGKILL);
        return;
      case Fault::kDeadInCall:
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          raise(SIGKILL);
        }).detach();
        return;
      default:
        return;
    }
  }

  void abort() {
    sleep_for(task_.timeout_seconds / 8);
    const auto start = Clock::now();
    say("abort", Answer::of(ops_.abort(ops_.self, group_.get())), start);
  }

  void call_once(Call& call) {
    call.write();
    std::vector<bp_collective_call> calls = call.calls();
    for (bp_collective_call& one : calls) {
      if (fault_ == Fault::kAbsent) one.timeout_ns = timeout_ns_;
    }
    const auto start = Clock::now();
    const Answer submitted = seat_.submit(group_, calls);
    is_running_ = submitted.is_ok();
    say("submit", submitted, start);
    if (submitted.is_ok()) finish({&call}, start);
  }

  // Waits for the work, and looks at the data of what has succeeded.
  void finish(const std::vector<Call*>& calls, Clock::time_point start) {
    const Answer waited = seat_.synchronize(patience_ns_);
    is_running_ = waited.is_ok();
    const bool still_runs = !waited.is_ok() && seat_.stream_status().is_ok();
    const Answer answer =
        still_runs ? Answer{BP_INTERNAL, "the work still runs: " + waited.text} : waited;
    say("stream", answer, start);
    // Work that went on would use memory of calls that are over. The stream fails when the work
    // ends, so its failure is not cleared before that.
    if (still_runs) {
      static_cast<void>(ops_.abort(ops_.self, group_.get()));
      static_cast<void>(seat_.synchronize(patience_ns_));
    }
    if (!waited.is_ok()) return;
    for (Call* const call : calls) {
      const Call::Found found = call->look();
      if (!found.text.empty() || call == calls.back()) {
        return say_step("data", {BP_OK, found.text}, 0, found.text.empty());
      }
    }
  }

  // Two calls in memory of their own, which the victim submits the other way round.
  void call_twice(const Place& at) {
    Call sum(at, check_, false), max(at, other_, false, 2);
    std::vector<Call*> calls = {&sum, &max};
    if (is_victim_) std::swap(calls[0], calls[1]);
    const auto start = Clock::now();
    std::vector<Call*> running;
    for (Call* const call : calls) {
      const Answer submitted = seat_.submit(group_, call->calls());
      say("submit", submitted, start);
      if (!submitted.is_ok()) break;
      running.push_back(call);
    }
    finish(running, start);
    say_status();
  }

  void say_status() {
    const auto start = Clock::now();
    say("status", group_.status(), start);
  }

  // Waits until the other ranks have ended, or can have.
  void wait_for_others() {
    const auto start = Clock::now();
    for (uint32_t rank = 0; rank < task_.world_size; ++rank) {
      const bool is_gone = rank == task_.victim && ends_victim(fault_);
      if (rank == task_.rank || is_gone || (rank == task_.victim && !is_victim_)) continue;
      const uint64_t passed_ns = nanoseconds_of(seconds_since(start));
      const uint64_t limit_ns = 2 * patience_ns_;
      std::string ignored;
      job_.store.get(ended_key(rank), limit_ns - std::min(limit_ns, passed_ns), ignored);
    }
  }

  // The ranks that are left make a new group.
  void again() {
    const bool is_short = ends_victim(fault_);
    const uint32_t size = task_.world_size - (is_short ? 1 : 0);
    const uint32_t rank = task_.rank - (is_short && task_.rank > task_.victim ? 1 : 0);
    Group group;
    Answer answer = seat_.create({&ops_, "group/again/", rank, size, 2 * patience_ns_}, group);
    if (answer.is_ok()) {
      Check check = check_;
      check.root = 0;
      const CheckResult result = run_check(place(group, rank, size), check, 2);
      if (result.outcome != Outcome::kPass) answer = {BP_INTERNAL, result.text};
    }
    say_step("again", answer, 0, true);
  }

  const RankJob& job_;
  const RankTask& task_;
  const Fault fault_;
  const bp_process_group_ops& ops_;
  Seat seat_;
  const bool is_victim_;
  const uint64_t timeout_ns_, patience_ns_;
  Check check_, other_;
  Group group_;
  std::set<std::string> shared_;
  bool is_running_ = false;
};

}  // namespace

void run_fault(const RankJob& job) { FaultRun(job).run(); }

}  // namespace bp::conformance::dist
