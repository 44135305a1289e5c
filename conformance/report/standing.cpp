#include "conformance/report/standing.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "conformance/cases/engine/op_frame.hpp"
#include "conformance/report/coverage.hpp"

namespace bp::conformance {
namespace {

constexpr const char* kRuntime = "runtime";
constexpr const char* kDist = "dist";
constexpr const char* kHighest = "Platinum";
constexpr size_t kMostRankOfLevelS = 4;

struct ProfileName {
  const char *name, *meaning;
};
constexpr ProfileName kProfiles[] = {
    {kRuntime, "devices, memory, streams, events, failures, threads, loading"},
    {"infer", "the ops that inference needs"},
    {"train", "losses, gradients, optimizers, random numbers"},
    {"llm", "attention and the ops of language models"},
    {"spectral", "Fourier transforms"},
    {"quantized", "ops on quantized tensors"},
    {kDist, "collectives between several devices"},
};

// Returns the profile to which a case belongs.
std::string profile_of(const Case& which) {
  if (which.op != 0 && bp_op_name(which.op) != nullptr) {
    return std::string(op_info(which.op).profile);
  }
  return which.id.starts_with("collective.") ? kDist : kRuntime;
}

void add(Shown& shown, Outcome outcome) {
  using enum Outcome;
  if (outcome == kFallback) {
    ++shown.served;
  } else if (outcome == kNotSupported) {
    ++shown.refused;
  } else if (outcome == kWaived) {
    ++shown.waived;
  } else if (count_of(outcome) == Count::kPassed) {
    ++shown.right;
  } else {
    ++(count_of(outcome) == Count::kFailed ? shown.wrong : shown.not_run);
  }
}

bool is_claimed(const std::string& profile, const nlohmann::json& hello) {
  if (profile == kRuntime) return true;
  if (!hello.is_object() || !hello.contains("targets")) return false;
  const nlohmann::json& target = hello.at("targets").at(hello.value("target", size_t{0}));
  const nlohmann::json& claimed = target.at("profiles");
  return std::ranges::any_of(claimed, [&](const nlohmann::json& name) {
    return name == profile || (name == "train" && profile == "infer");
  });
}

// Level S has tensors of few axes, dense or with their axes exchanged.
bool is_of_level_s(const Case& which) {
  const std::string layout = layout_class_of(which);
  return rank_of(which) <= kMostRankOfLevelS &&
         (layout.empty() || layout == "dense" || layout == "permute" || layout == "empty");
}

bool is_of_loading(const std::string& id) {
  return std::ranges::any_of(std::array{"load", "unload", "abi.", "device."},
                             [&](const char* prefix) { return id.starts_with(prefix); });
}

struct BadgeRow {
  const char *name, *needs;
  const char* claim;  // The profile that the backend must claim.
  bool (*contains)(const Judged& judged, const std::string& profile);
};
constexpr BadgeRow kBadges[] = {
    {"Loadable", "it loads, says what it has, refuses with reasons, and unloads", kRuntime,
     [](const Judged& judged, const std::string&) { return is_of_loading(judged.id); }},
    {"Bronze", "runtime, and infer on dense and transposed tensors of at most 4 axes", "infer",
     [](const Judged& judged, const std::string& profile) {
       return profile == kRuntime ||
              (profile == "infer" && (judged.which == nullptr || is_of_level_s(*judged.which)));
     }},
    {"Silver", "runtime, and infer in every layout and rank", "infer",
     [](const Judged&, const std::string& profile) {
       return profile == kRuntime || profile == "infer";
     }},
    {"Gold", "Silver, train, and true declarations", "train",
     [](const Judged&, const std::string& profile) {
       return profile == kRuntime || profile == "infer" || profile == "train";
     }},
    {kHighest, "Gold, collectives, faults, and long runs (stress)", kDist,
     [](const Judged&, const std::string& profile) {
       return profile == kRuntime || profile == "infer" || profile == "train" || profile == kDist;
     }},
};

std::string text_of(const Badge& badge, const char* unclaimed, const RunHeader& header,
                    bool has_lower) {
  const Shown& s = badge.shown;
  if (s.wrong > 0) return std::to_string(s.wrong) + " of its cases fail";
  if (s.waived > 0) return std::to_string(s.waived) + " of its cases are waived";
  if (unclaimed != nullptr) return std::string("the backend does not claim ") + unclaimed;
  if (s.right == 0) return "no case of it ran";
  if (s.not_run > 0) return std::to_string(s.not_run) + " of its cases did not run";
  if (header.tier != Tier::kFull || !header.is_whole_tier) {
    return "clean so far: " + std::to_string(s.right) + " cases; it is given at tier full";
  }
  if (badge.name == kHighest) return "its cases are clean; a run does not show faults and stress";
  return has_lower ? "given" : "its cases are clean; the badge below is not given";
}

// Returns the first line of a reason. If the line names a whole call, "layout not claimed: add(a
// f32 ...) on npu:0", it returns only the part before the arguments.
std::string_view kind_of_reason(std::string_view message) {
  const std::string_view line = message.substr(0, message.find('\n'));
  const size_t arguments = line.find('(');
  const bool is_call = arguments != line.npos && line.find(") on ", arguments) != line.npos;
  return is_call ? line.substr(0, arguments) : line;
}

}  // namespace

const char* ProfileStanding::state() const {
  if (shown.wrong > 0) return "fails";
  if (!is_claimed) return "not claimed";
  if (shown.right == 0) return "not shown";
  return shown.is_clean() ? "holds" : "not complete";
}

std::vector<ProfileStanding> profiles_of(const RunReport& report, const Summary& summary) {
  std::vector<ProfileStanding> all;
  for (const ProfileName& row : kProfiles) {
    all.push_back({row.name, row.meaning, is_claimed(row.name, report.hello), {}});
  }
  for (const Judged& judged : summary.judged) {
    const std::string name = judged.which == nullptr ? kRuntime : profile_of(*judged.which);
    const auto found = std::ranges::find(all, name, &ProfileStanding::name);
    if (found != all.end()) add(found->shown, judged.result.outcome);
  }
  return all;
}

std::vector<Badge> badges_of(const RunHeader& header, const RunReport& report,
                             const Summary& summary) {
  std::vector<Badge> all;
  bool has_lower = true;
  for (const BadgeRow& row : kBadges) {
    Badge badge{row.name, row.needs, {}, false, ""};
    for (const Judged& judged : summary.judged) {
      const std::string profile = judged.which == nullptr ? kRuntime : profile_of(*judged.which);
      if (row.contains(judged, profile)) add(badge.shown, judged.result.outcome);
    }
    const char* unclaimed = is_claimed(row.claim, report.hello) ? nullptr : row.claim;
    badge.text = text_of(badge, unclaimed, header, has_lower);
    badge.is_given = badge.text == "given";
    has_lower = badge.is_given;
    all.push_back(std::move(badge));
  }
  return all;
}

std::vector<std::pair<size_t, std::string>> reasons_of(const Summary& summary,
                                                       std::initializer_list<Outcome> outcomes) {
  std::map<std::string, size_t> reasons;
  for (const Judged& judged : summary.judged) {
    if (std::ranges::find(outcomes, judged.result.outcome) == outcomes.end()) continue;
    ++reasons[std::string(kind_of_reason(judged.result.message))];
  }
  std::vector<std::pair<size_t, std::string>> sorted;
  sorted.reserve(reasons.size());
  for (const auto& [reason, count] : reasons) sorted.emplace_back(count, reason);
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const auto& reason) { return reason.first; });
  return sorted;
}

}  // namespace bp::conformance
