#include "conformance/report/summary.hpp"

#include <algorithm>
#include <cstdio>

#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

Judged judge(const CaseList& cases, const Waivers& waivers, const Attempt& attempt) {
  Judged judged;
  judged.attempt = attempt;
  if (attempt.index < cases.size()) {
    judged.which = &cases[attempt.index];
    judged.id = judged.which->id;
    judged.result = waivers.apply(*judged.which, attempt.result);
  } else {
    judged.id = attempt.index == kLoad ? "load" : "unload";
    judged.result = attempt.result;
    judged.attempt_count = 1;
    judged.is_confirmed = true;
  }
  return judged;
}

std::string key_of(const Judged& judged) {
  return judged.which == nullptr ? judged.id : signature(*judged.which, judged.result);
}

// Returns the pattern that the ids of a group share: "op.matmul.f32.*", or the id if there is only
// one.
std::string label_of(const std::vector<Judged>& all, const FailureGroup& group) {
  std::string common = all[group.members.front()].id;
  if (group.members.size() == 1) return common;
  for (const size_t member : group.members) {
    const std::string& id = all[member].id;
    const auto end = std::mismatch(common.begin(), common.end(), id.begin(), id.end()).first;
    common.erase(end, common.end());
  }
  const size_t dot = common.rfind('.');
  return common.substr(0, dot == std::string::npos ? common.size() : dot + 1) + "*";
}

void group_failures(Summary& summary) {
  std::map<std::string, FailureGroup> groups;
  for (size_t i = 0; i < summary.judged.size(); ++i) {
    const Judged& judged = summary.judged[i];
    if (count_of(judged.result.outcome) != Count::kFailed) continue;
    FailureGroup& group = groups[key_of(judged)];
    group.tag = judged.result.tag;
    group.outcome = judged.result.outcome;
    group.cause = judged.result.cause;
    group.members.push_back(i);
  }
  for (auto& [key, group] : groups) {
    group.label = label_of(summary.judged, group);
    summary.failures.push_back(std::move(group));
  }
  std::stable_sort(summary.failures.begin(), summary.failures.end(),
                   [](const FailureGroup& a, const FailureGroup& b) {
                     return a.members.size() > b.members.size();
                   });
}

void count_all(Summary& summary) {
  for (const Judged& judged : summary.judged) {
    const Outcome outcome = judged.result.outcome;
    const Count count = count_of(outcome);
    ++summary.outcomes[outcome];
    ++(count == Count::kPassed   ? summary.passed
       : count == Count::kFailed ? summary.failed
                                 : summary.skipped);
    if (judged.which == nullptr) continue;
    GroupCount& group = summary.groups[judged.which->group];
    ++group.total;
    group.right += count == Count::kPassed;
    for (const std::string& tag : judged.which->tags) {
      ++summary.tags[tag].total;
      summary.tags[tag].right += count == Count::kPassed;
    }
  }
}

std::string verdict_of(const Summary& s, const RunHeader& header, const RunReport& report) {
  const auto counted = [&](size_t count, const char* word) {
    return count == 0 ? std::string() : ", " + std::to_string(count) + " " + word;
  };
  if (report.is_interrupted) return "INTERRUPTED: the results so far are valid";
  if (s.failed > 0) {
    std::string parts =
        counted(s.count({Outcome::kFail, Outcome::kResourceError, Outcome::kXPass}), "wrong") +
        counted(s.count({Outcome::kMissing}), "missing") +
        counted(s.count({Outcome::kUnclaimed}), "unclaimed") +
        counted(
            s.count({Outcome::kCrash, Outcome::kTimeout, Outcome::kDeviceLost, Outcome::kFlake}),
            "unstable") +
        counted(s.count({Outcome::kHarnessError}), "errors of the suite");
    return "NOT CONFORMANT (" + parts.substr(2) + ")";
  }
  const std::string where = std::string(" at tier ") + tier_name(header.tier) +
                            (header.is_whole_tier ? "" : ", of the selected cases");
  if (s.count({Outcome::kWaived}) > 0) return "PASSED WITH WAIVERS" + where;
  if (s.passed == 0) return "NOTHING SHOWN: no case ran to a pass";
  const bool is_complete =
      header.is_whole_tier && s.count({Outcome::kSkip, Outcome::kMistrusted}) == 0;
  if (header.tier == Tier::kFull && is_complete) return "CONFORMANT";
  return "CLEAN" + where;
}

bool is_only_declarations(const Summary& s) {
  return std::ranges::all_of(s.judged, [](const Judged& judged) {
    return count_of(judged.result.outcome) != Count::kFailed ||
           judged.result.cause == "declaration";
  });
}

ExitCode exit_code_of(const Summary& s, const RunHeader& header, const RunReport& report) {
  if (report.is_interrupted) return kExitInterrupted;
  if (report.load_failure) return kExitNotLoaded;
  if (s.count({Outcome::kSkip}) == s.judged.size()) return kExitNothingRan;
  if (s.count({Outcome::kHarnessError}) > 0) return kExitHarness;
  if (s.failed > 0) return is_only_declarations(s) ? kExitDeclaration : kExitFailures;
  if (header.budget_seconds > 0 && report.wall_seconds > header.budget_seconds) {
    return kExitTooSlow;
  }
  return kExitOk;
}

// Quotes a word for bash, with escapes for characters that are not visible.
std::string escaped_word(const std::string& word) {
  std::string text = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    char escape[8] = {c, '\0'};
    if (byte < 0x20 || byte >= 0x7f) std::snprintf(escape, sizeof(escape), "\\%03o", byte);
    text += (c == '\'' || c == '\\' ? "\\" : "") + std::string(escape);
  }
  return text + "'";
}

std::string quoted(const std::string& word) {
  if (clean_text(word, LineBreaks::kEscape, word.size()) != word) return escaped_word(word);
  const bool is_plain =
      !word.empty() && word.find_first_of(" \t\n'\"\\$&;|<>*?()[]{}~#!`") == std::string::npos;
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string FailureGroup::title() const {
  const std::string name = tag.empty() ? label : tag;
  return cause.empty() ? name : name + " " + cause;
}

size_t Summary::count(std::initializer_list<Outcome> which) const {
  size_t sum = 0;
  for (const Outcome outcome : which) {
    const auto found = outcomes.find(outcome);
    if (found != outcomes.end()) sum += found->second;
  }
  return sum;
}

Summary summarize(const RunHeader& header, const CaseList& cases, const RunReport& report,
                  const Waivers& waivers) {
  Summary summary;
  for (const Final& final : report.finals) {
    Judged judged = judge(cases, waivers, final.attempt);
    judged.attempt_count = final.attempt_count;
    judged.is_confirmed = final.is_confirmed;
    summary.judged.push_back(std::move(judged));
  }
  for (const Attempt& attempt : report.process) {
    summary.judged.push_back(judge(cases, waivers, attempt));
  }
  count_all(summary);
  group_failures(summary);
  summary.verdict = verdict_of(summary, header, report);
  summary.exit_code = exit_code_of(summary, header, report);
  return summary;
}

std::string repro_line(const RunHeader& header, const Judged& judged) {
  const std::string& recording = header.session.setup.recording.path;
  std::string line = "bp-conformance " + std::string(recording.empty() ? "run " : "replay ") +
                     quoted(header.plugin);
  if (!recording.empty()) line += " " + quoted(recording);
  // Ids may come from a backend or a file, and the line is for a shell.
  const auto add_case = [&](const std::string& id) { line += " --case " + quoted(id); };
  const auto after = judged.result.details.find("after");
  if (after != judged.result.details.end()) {
    std::string ids = after->second;
    for (size_t comma; (comma = ids.find(", ")) != std::string::npos;) {
      add_case(ids.substr(0, comma));
      ids.erase(0, comma + 2);
    }
    add_case(ids);
  }
  // The flags name a changed case by its file.
  if (judged.which != nullptr && judged.which->change.empty()) add_case(judged.id);
  char seed[32];
  std::snprintf(seed, sizeof(seed), " --seed 0x%llx", static_cast<unsigned long long>(header.seed));
  line += seed;
  for (const std::string& flag : header.repro_flags) line += " " + quoted(flag);
  return line;
}

}  // namespace bp::conformance
