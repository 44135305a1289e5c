#include "conformance/dist/report.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "conformance/json_file.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance::dist {
namespace {

constexpr size_t kMostFailures = 20;  // Of those that the page shows in full.
constexpr size_t kLongestReason = 400;

std::string place_of(const Result& result) {
  return result.table + ", " + std::to_string(result.ranks) +
         (result.ranks == 1 ? " rank: " : " ranks: ");
}

std::string line_of(const std::string& text, size_t most) {
  return clean_text(text, LineBreaks::kEscape, most);
}

}  // namespace

void Tally::add(Outcome outcome, size_t count) {
  switch (count_of(outcome)) {
    case Count::kPassed:
      passed += count;
      break;
    case Count::kFailed:
      failed += count;
      break;
    case Count::kSkipped:
      skipped += count;
      break;
  }
}

void Report::add(Result result) {
  const Key key{result.table, result.section, result.group};
  const auto is_it = [&](const auto& entry) { return entry.first == key; };
  auto found = std::ranges::find_if(tallies_, is_it);
  if (found == tallies_.end()) found = tallies_.insert(tallies_.end(), {key, {}});
  found->second.add(result.outcome);
  if (result.outcome != Outcome::kPass) results_.push_back(std::move(result));
}

void Report::add_bandwidth(const std::string& table, uint32_t ranks,
                           std::vector<BandwidthRow> rows) {
  bandwidths_.push_back({table, ranks, std::move(rows)});
}

Tally Report::total() const {
  Tally total;
  for (const auto& [key, tally] : tallies_) {
    total.passed += tally.passed;
    total.failed += tally.failed;
    total.skipped += tally.skipped;
  }
  return total;
}

std::string Report::counts_text() const {
  std::string text;
  std::string title;
  for (const auto& [key, tally] : tallies_) {
    std::array<char, 256> line;
    const std::string here = key.section + " of " + key.table;
    if (here != title) {
      std::snprintf(line.data(), line.size(), "\n%-34s %8s %8s %8s\n", here.c_str(), "passed",
                    "failed", "skipped");
      text += line.data();
      title = here;
    }
    std::snprintf(line.data(), line.size(), "  %-32s %8zu %8zu %8zu\n", key.group.c_str(),
                  tally.passed, tally.failed, tally.skipped);
    text += line.data();
  }
  return text;
}

std::string Report::failures_text() const {
  std::string text;
  size_t shown = 0, hidden = 0;
  for (const Result& result : results_) {
    if (count_of(result.outcome) != Count::kFailed) continue;
    if (shown == kMostFailures) {
      ++hidden;
      continue;
    }
    text += "  #" + std::to_string(++shown) + " " + place_of(result) + result.name + "  " +
            outcome_name(result.outcome) + "\n       " + line_of(result.text, kMaxPluginText) +
            "\n";
    for (const std::string& note : result.notes) {
      text += "       " + line_of(note, kMaxPluginText) + "\n";
    }
  }
  if (hidden != 0) text += "  and " + std::to_string(hidden) + " more; --json has all of them\n";
  return text.empty() ? "" : "\nFAILURES\n" + text;
}

std::string Report::reasons_text(const char* title, bool (*is_shown)(Outcome)) const {
  // Equal reasons of several numbers of ranks are one line.
  struct Reason {
    std::string table, text;
    std::vector<uint32_t> ranks;
    size_t count = 0;
  };
  std::vector<Reason> reasons;
  for (const Result& result : results_) {
    if (!is_shown(result.outcome)) continue;
    const std::string what = result.name + ": " + line_of(result.text, kLongestReason);
    auto found = std::ranges::find_if(reasons, [&](const Reason& reason) {
      return reason.table == result.table && reason.text == what;
    });
    if (found == reasons.end()) found = reasons.insert(found, {result.table, what, {}, 0});
    ++found->count;
    if (std::ranges::count(found->ranks, result.ranks) == 0) found->ranks.push_back(result.ranks);
  }
  std::string text;
  for (const Reason& reason : reasons) {
    std::string ranks;
    for (const uint32_t n : reason.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(n);
    const size_t times = reason.count / reason.ranks.size();
    text += "  " + (times > 1 ? std::to_string(reason.count) + " x " : "") + reason.table + ", " +
            ranks + (ranks == "1" ? " rank: " : " ranks: ") + reason.text + "\n";
  }
  return text.empty() ? "" : std::string("\n") + title + "\n" + text;
}

std::string Report::text() const {
  return counts_text() + failures_text() +
         reasons_text("WARNINGS",
                      [](Outcome outcome) {
                        return outcome != Outcome::kPass && count_of(outcome) == Count::kPassed;
                      }) +
         reasons_text("SKIPPED",
                      [](Outcome outcome) { return count_of(outcome) == Count::kSkipped; });
}

std::string Report::verdict() const {
  const Tally all = total();
  const char* const word = all.failed != 0 ? "FAIL" : all.passed == 0 ? "NOTHING RAN" : "PASS";
  return std::string(word) + "   " + std::to_string(all.passed) + " passed, " +
         std::to_string(all.failed) + " failed, " + std::to_string(all.skipped) + " skipped";
}

nlohmann::json Report::json() const {
  nlohmann::json counts = nlohmann::json::array(), results = nlohmann::json::array(),
                 bandwidths = nlohmann::json::array();
  for (const auto& [key, tally] : tallies_) {
    counts.push_back({{"table", key.table},
                      {"section", key.section},
                      {"group", key.group},
                      {"passed", tally.passed},
                      {"failed", tally.failed},
                      {"skipped", tally.skipped}});
  }
  for (const Result& result : results_) {
    results.push_back({{"table", result.table},
                       {"ranks", result.ranks},
                       {"section", result.section},
                       {"group", result.group},
                       {"name", result.name},
                       {"outcome", outcome_name(result.outcome)},
                       {"text", result.text},
                       {"notes", result.notes}});
  }
  for (const Bandwidth& bandwidth : bandwidths_) {
    for (const BandwidthRow& row : bandwidth.rows) {
      const auto timing = [&](const Timing& t) -> nlohmann::json {
        if (!t.is_measured) return nullptr;
        const double algorithm = row.algorithm_bandwidth(t);
        return {{"seconds", t.seconds},
                {"algorithm_bytes_per_s", algorithm},
                {"bus_bytes_per_s", algorithm * bus_factor(row.claim.kind, bandwidth.ranks)},
                {"wrong", t.wrong_count}};
      };
      bandwidths.push_back({{"table", bandwidth.table},
                            {"ranks", bandwidth.ranks},
                            {"call", claim_text(row.claim)},
                            {"size_bytes", row.size_bytes},
                            {"count", row.count},
                            {"out_of_place", timing(row.apart)},
                            {"in_place", timing(row.in_place)}});
    }
  }
  const Tally all = total();
  return {{"counts", counts},     {"results", results},   {"bandwidth", bandwidths},
          {"passed", all.passed}, {"failed", all.failed}, {"skipped", all.skipped}};
}

}  // namespace bp::conformance::dist
