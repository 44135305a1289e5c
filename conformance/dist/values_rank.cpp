// One rank of a run of checks. All ranks run the same checks in the same order.
#include <algorithm>
#include <set>

#include "conformance/dist/check_run.hpp"
#include "conformance/dist/holdings.hpp"
#include "conformance/dist/jobs.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance::dist {
namespace {

class ValuesRun {
 public:
  explicit ValuesRun(const RankJob& job)
      : job_(job),
        task_(job.task),
        ops_(job.backend.table(task_.table)),
        seat_(job.backend, task_, job.store),
        timeout_ns_(nanoseconds_of(task_.timeout_seconds)),
        patience_ns_(nanoseconds_of(task_.timeout_seconds + task_.grace_seconds)) {}

  void run() {
    Group group;
    if (!create("group/first/", group)) return;
    const Place place{seat_,      group,       job_.store,  task_.rank, task_.world_size,
                      task_.seed, timeout_ns_, patience_ns_};
    const std::vector<Claim> claims = agreed_claims(group);
    const std::vector<Check> checks = list_checks(claims, task_.world_size, task_.tier);
    job_.speaker.say("plan", {{"count", checks.size()}});
    if (!run_checks(place, checks)) return;
    const std::set<std::string> shared = shared_memory_in_use();
    destroy(group);
    if (const std::string key = job_.store.foreign_key(); !key.empty()) {
      extra("store", Outcome::kFail,
            "the backend used the key '" + key + "', which does not begin with its prefix");
    }
    look_for_leaks(place, checks, shared);
  }

 private:
  void extra(const char* group, Outcome outcome, const std::string& text) {
    job_.speaker.say("extra",
                     {{"group", group}, {"outcome", outcome_name(outcome)}, {"text", text}});
  }

  bool create(const std::string& prefix, Group& out_group) {
    job_.speaker.say("begin", {{"text", "create"}});
    const Answer made =
        seat_.create({&ops_, prefix, task_.rank, task_.world_size, timeout_ns_}, out_group);
    job_.speaker.say("create", {{"status", made.status}, {"text", made.text}});
    return made.is_ok();
  }

  // All ranks run the claims that all of them confirm.
  std::vector<Claim> agreed_claims(const Group& group) {
    const bp_device_properties& p = *seat_.target().properties;
    std::vector<bp_dtype> dtypes;
    for (uint64_t i = 0; i < p.dtype_count; ++i) {
      if (has_values(p.dtypes[i])) dtypes.push_back(p.dtypes[i]);
    }
    const std::vector<Claim> possible = possible_claims(dtypes);
    const std::vector<Claim> own = confirmed_claims(group, possible);
    std::string mine;
    for (const Claim& claim : possible) mine += std::ranges::count(own, claim) != 0 ? '1' : '0';
    const auto key_of = [](uint32_t rank) { return "suite/claims/" + std::to_string(rank); };
    job_.store.put(key_of(task_.rank), mine);
    std::vector<Claim> claims;
    std::vector<bool> is_agreed(possible.size(), true);
    for (uint32_t rank = 0; rank < task_.world_size; ++rank) {
      std::string theirs;
      if (!job_.store.get(key_of(rank), patience_ns_, theirs)) {
        throw RankError("rank " + std::to_string(rank) + " did not say what it supports");
      }
      if (theirs.size() != mine.size()) throw RankError("the devices have different dtypes");
      for (size_t i = 0; i < possible.size(); ++i) {
        if (theirs[i] == mine[i]) continue;
        if (task_.first == 0 && is_agreed[i]) {
          extra("supports", Outcome::kFail,
                "supports() of " + claim_text(possible[i]) + " differs from that of rank " +
                    std::to_string(rank));
        }
        is_agreed[i] = false;
      }
    }
    for (size_t i = 0; i < possible.size(); ++i) {
      if (is_agreed[i] && mine[i] == '1') claims.push_back(possible[i]);
    }
    if (task_.rank == 0 && task_.first == 0) tell_refusals(possible, claims);
    return claims;
  }

  void tell_refusals(const std::vector<Claim>& possible, const std::vector<Claim>& claims) {
    for (bp_collective_kind kind = BP_COLLECTIVE_ALL_REDUCE; kind <= BP_COLLECTIVE_BARRIER;
         ++kind) {
      // "average i8, i16; scaled_sum i8, i16".
      std::string refused;
      bp_reduction last = UINT32_MAX;
      std::vector<Claim> ordered = possible;
      std::ranges::stable_sort(ordered, {}, &Claim::reduction);
      for (const Claim& claim : ordered) {
        if (claim.kind != kind || std::ranges::count(claims, claim) != 0) continue;
        if (claim.reduction == last) {
          refused += std::string(", ") + dtype_text(claim.dtype);
          continue;
        }
        refused += (refused.empty() ? "" : "; ") + claim_text(claim);
        last = claim.reduction;
      }
      if (refused.empty()) continue;
      const Check check{.claim = {kind, 0, 0}};
      extra(check.group().c_str(), Outcome::kNotSupported, "supports() refuses " + refused);
    }
  }

  void destroy(Group& group) {
    const Answer destroyed = group.destroy();
    if (!destroyed.is_ok()) extra("destroy", Outcome::kFail, "destroy: " + destroyed.text);
  }

  // Makes and destroys small groups, and compares what the process holds between them. The first
  // group was destroyed before.
  void look_for_leaks(const Place& place, const std::vector<Check>& checks,
                      const std::set<std::string>& shared) {
    constexpr int kRounds = 3;
    std::vector<Holdings> rounds = {Holdings::settled()};
    for (int round = 0; round < kRounds; ++round) {
      if (!create("group/round" + std::to_string(round) + "/", place.group)) return;
      run_samples(place, checks);
      destroy(place.group);
      rounds.push_back(rounds.back().awaited(0));
    }
    job_.speaker.say("left", {{"left", steady_growth(rounds)}, {"shared", shared}});
  }

  // Runs one small check of each family.
  void run_samples(const Place& place, const std::vector<Check>& checks) {
    std::set<std::string> seen;
    for (uint64_t i = 0; i < checks.size(); ++i) {
      const Check& check = checks[i];
      const bool is_small = check.sort != Sort::kCall || check.count > 1;
      if (is_skipped(check) || !is_small || !seen.insert(check.family()).second) continue;
      job_.speaker.say("begin", {{"text", check.text() + " in a later group"}});
      const CheckResult result = run_check(place, check, i);
      const bool is_known = failed_.contains(check.family());
      if (count_of(result.outcome) != Count::kFailed || is_known) continue;
      extra("later groups", Outcome::kFail, check.text() + ": " + result.text);
      if (result.has_ended_group) return;
    }
  }

  bool is_skipped(const Check& check) const {
    return std::ranges::count(task_.skips, check.family()) != 0;
  }

  // Returns false if a check ended the group.
  bool run_checks(const Place& place, const std::vector<Check>& checks) {
    for (uint64_t i = task_.first; i < checks.size(); ++i) {
      const Check& check = checks[i];
      CheckResult result;
      if (is_skipped(check)) {
        result = {
            Outcome::kSkip, "earlier checks of " + check.family() + " ended the group", false, {}};
      } else {
        job_.speaker.say("begin", {{"check", i},
                                   {"text", check.text()},
                                   {"group", check.group()},
                                   {"family", check.family()}});
        result = run_check(place, check, i);
      }
      if (count_of(result.outcome) == Count::kFailed) failed_.insert(check.family());
      nlohmann::json line = {{"check", i},
                             {"group", check.group()},
                             {"family", check.family()},
                             {"outcome", outcome_name(result.outcome)}};
      if (result.outcome != Outcome::kPass) {
        line["name"] = check.text();
        line["text"] = result.text;
      }
      if (!result.hashes.empty()) {
        line["name"] = check.text();
        line["hashes"] = result.hashes;
      }
      if (result.has_ended_group) line["has_ended_group"] = true;
      job_.speaker.say("end", std::move(line));
      if (result.has_ended_group) return false;
    }
    return true;
  }

  const RankJob& job_;
  const RankTask& task_;
  const bp_process_group_ops& ops_;
  Seat seat_;
  const uint64_t timeout_ns_, patience_ns_;
  std::set<std::string> failed_;  // The families of checks that failed on this rank.
};

}  // namespace

void run_values(const RankJob& job) { ValuesRun(job).run(); }

}  // namespace bp::conformance::dist
