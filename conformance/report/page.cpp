#include "conformance/report/page.hpp"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "conformance/report/standing.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr size_t kShownGroups = 10;
constexpr size_t kShownFixes = 5;
constexpr size_t kWidth = 100;

// Indents the text, so that none of its lines looks like a line of the page.
std::string indented(const std::string& text) { return clean_text(text, LineBreaks::kIndent); }

class Page {
 public:
  Page(const RunHeader& header, const RunReport& report, const Summary& summary,
       const PageOptions& options)
      : header_(header), report_(report), summary_(summary), options_(options) {}

  std::string write() {
    if (!options_.is_quiet) {
      write_header();
      write_counts();
      write_failures();
      write_slowest();
      write_served();
    }
    if (options_.explains_fallbacks) write_fallbacks();
    write_verdict();
    return out_.str();
  }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return options_.has_color ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
  }

  void write_header() {
    char seed[32];
    std::snprintf(seed, sizeof(seed), "0x%llx", static_cast<unsigned long long>(header_.seed));
    out_ << "bp-conformance (suite " << kSuiteVersion << ")   seed " << seed << "   tier "
         << tier_name(header_.tier) << "\n";
    const json& hello = report_.hello;
    if (hello.is_object() && hello.contains("plugin")) {
      const json& plugin = hello.at("plugin");
      out_ << "plugin  " << plugin.value("name", "") << " " << plugin.value("version", "")
           << "   abi " << plugin.value("abi", "") << "   sha256 "
           << hello.value("sha256", "").substr(0, 12) << "   " << plugin.value("path", "") << "\n";
      write_device(hello);
    }
    if (hello.is_object()) {
      for (const json& line : hello.value("log", json::array())) {
        out_ << "log     " << line.get<std::string>() << "\n";
      }
    }
    for (const std::string& line : header_.environment) out_ << "env     " << line << "\n";
    if (!header_.waivers.empty()) out_ << "waivers " << header_.waivers << "\n";
    out_ << "\n";
  }

  void write_device(const json& hello) {
    const json& target = hello.at("targets").at(hello.value("target", size_t{0}));
    const double bytes =
        target.at("heaps").empty() ? 0.0 : target.at("heaps")[0].at("size_bytes").get<double>();
    out_ << "device  " << target.value("name", "") << ": " << target.value("device", "") << " ("
         << fixed_text(bytes / (1 << 30), 1) << " GiB)   dtypes " << join(target.at("dtypes"))
         << "   kernels " << target.at("kernels").size() << "\n";
    if (!target.at("profiles").empty()) {
      out_ << "claims  " << join(target.at("profiles")) << "\n";
    }
  }

  static std::string join(const json& names) {
    std::string text;
    for (const json& name : names) text += (text.empty() ? "" : " ") + name.get<std::string>();
    return text;
  }

  void row(const char* color, const char* word, size_t count, const std::string& text) {
    if (count == 0 && std::string_view(word) != "RIGHT" && std::string_view(word) != "WRONG") {
      return;
    }
    char head[40];
    std::snprintf(head, sizeof(head), "  %-10s %6zu", word, count);
    out_ << (count > 0 ? paint(color, head) : std::string(head));
    if (count > 0 && !text.empty()) out_ << "   " << wrap(text, 21);
    out_ << "\n";
  }

  // Breaks `text` at blanks, so that lines end before the width of the page.
  static std::string wrap(const std::string& text, size_t indent) {
    std::istringstream words(text);
    std::string result, line;
    for (std::string word; std::getline(words, word, '\t');) {
      if (!line.empty() && indent + line.size() + 2 + word.size() > kWidth) {
        result += line + "\n" + std::string(indent, ' ');
        line.clear();
      }
      line += (line.empty() ? "" : "  ") + word;
    }
    return result + line;
  }

  std::string groups_text() const {
    std::string text;
    for (const auto& [name, count] : summary_.groups) {
      text += (text.empty() ? "" : "\t") + name + " " + std::to_string(count.right) + "/" +
              std::to_string(count.total);
    }
    return text;
  }

  // Returns the subjects of the failures with these outcomes: "matmul.f32, add.f32 ...".
  std::string subjects_of(std::initializer_list<Outcome> outcomes) const {
    std::string text;
    size_t shown = 0, causes = 0;
    for (const FailureGroup& group : summary_.failures) {
      if (std::find(outcomes.begin(), outcomes.end(), group.outcome) == outcomes.end()) continue;
      ++causes;
      if (++shown > 4) continue;
      text += (text.empty() ? "" : ",\t") + group.label;
      if (group.members.size() > 1) text += " (" + std::to_string(group.members.size()) + ")";
    }
    if (shown > 4) text += ",\t...";
    return std::to_string(causes) + (causes == 1 ? " cause: " : " causes: ") + text;
  }

  // Returns the reasons why cases were not run, each with its count, the most frequent first.
  std::string reasons_of(std::initializer_list<Outcome> outcomes) const {
    const auto sorted = conformance::reasons_of(summary_, outcomes);
    std::string text;
    for (size_t i = 0; i < sorted.size() && i < 4; ++i) {
      text += (i == 0 ? "" : ";\t") + std::to_string(sorted[i].first) + " " + sorted[i].second;
    }
    if (sorted.size() > 4) text += ";\t...";
    return text;
  }

  void write_counts() {
    using O = Outcome;
    const Summary& s = summary_;
    row("32", "RIGHT", s.passed, groups_text());
    const auto wrong = {O::kFail, O::kResourceError, O::kXPass};
    row("31", "WRONG", s.count(wrong), subjects_of(wrong));
    row("31", "MISSING", s.count({O::kMissing}), reasons_of({O::kMissing}));
    row("31", "UNCLAIMED", s.count({O::kUnclaimed}), subjects_of({O::kUnclaimed}));
    const auto unstable = {O::kCrash, O::kTimeout, O::kDeviceLost, O::kFlake};
    row("31", "UNSTABLE", s.count(unstable), unstable_text());
    row("31", "SUITE", s.count({O::kHarnessError}), reasons_of({O::kHarnessError}));
    row("33", "FALLBACK", s.count({O::kFallback}),
        "right through a decomposition or the host; never counted as native");
    row("33", "WAIVED", s.count({O::kWaived}), reasons_of({O::kWaived}));
    const auto not_run = {O::kNotSupported, O::kSkip, O::kMistrusted};
    row("33", "NOT RUN", s.count(not_run), reasons_of(not_run));
    row("33", "WARNINGS", s.count({O::kQualityWarning, O::kCompatWarning}),
        "among the RIGHT: within the contract, but suspicious");
    for (const Judged& judged : s.judged) {
      const bool is_warning = judged.result.outcome == O::kQualityWarning;
      if (judged.which != nullptr || !is_warning) continue;
      out_ << "  warning: " << indented(judged.result.message) << "\n";
    }
    out_ << "\n";
  }

  std::string unstable_text() const {
    const Summary& s = summary_;
    std::string text;
    const auto add = [&](Outcome outcome, const char* word) {
      const size_t count = s.count({outcome});
      if (count > 0) text += (text.empty() ? "" : ",\t") + std::to_string(count) + " " + word;
    };
    add(Outcome::kCrash, "crashed (isolated)");
    add(Outcome::kTimeout, "hung");
    add(Outcome::kDeviceLost, "lost the device");
    add(Outcome::kFlake, "did not repeat");
    return text;
  }

  // Returns the requirement that was broken, or those of which it is one.
  static std::string tags_of(const FailureGroup& group, const Judged& first) {
    const auto tags = first.result.details.find(kTagsDetail);
    if (tags != first.result.details.end()) return "one of " + tags->second + ":";
    return group.tag.empty() ? "-" : group.tag;
  }

  // Writes from what the worst element was computed, and by which call.
  void write_details(const Result& result) {
    for (const char* name : {kInputsDetail, kCallDetail}) {
      const auto detail = result.details.find(name);
      if (detail == result.details.end()) continue;
      out_ << "   " << name << ": " << indented(detail->second) << "\n";
    }
  }

  void write_failures() {
    const size_t limit = options_.is_verbose ? summary_.failures.size() : kShownGroups;
    for (size_t i = 0; i < summary_.failures.size() && i < limit; ++i) {
      const FailureGroup& group = summary_.failures[i];
      const Judged& first = summary_.judged[group.members.front()];
      const size_t count = group.members.size();
      out_ << paint("1",
                    "#" + std::to_string(i + 1) + " " + tags_of(group, first) + "  " + group.label)
           << "  " << count << (count == 1 ? " case" : " cases") << "  "
           << outcome_name(group.outcome) << (group.cause.empty() ? "" : " (" + group.cause + ")")
           << "\n   " << indented(first.result.message) << "\n";
      for (size_t note = 0; note < first.result.notes.size() && note < 3; ++note) {
        out_ << "   also: " << indented(first.result.notes[note]) << "\n";
      }
      write_details(first.result);
      out_ << "   repro: " << repro_line(header_, first) << "\n";
    }
    if (summary_.failures.size() > limit) {
      out_ << "... and " << summary_.failures.size() - limit
           << " more causes: -v shows them, summary.json lists them\n";
    }
    write_fixes();
  }

  void write_fixes() {
    std::map<std::string, size_t> counts;
    for (const FailureGroup& group : summary_.failures) {
      counts[group.title()] += group.members.size();
    }
    if (counts.empty()) return;
    std::vector<std::pair<size_t, std::string>> sorted;
    sorted.reserve(counts.size());
    for (const auto& [title, count] : counts) sorted.emplace_back(count, title);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    const size_t shown = std::min(sorted.size(), kShownFixes);
    constexpr const char* kNumbers[] = {"the fix that turns", "two fixes that turn",
                                        "three fixes that turn", "four fixes that turn",
                                        "five fixes that turn"};
    out_ << kNumbers[shown - 1] << " most cases green:";
    for (size_t i = 0; i < shown; ++i) {
      out_ << (i == 0 ? " " : ", ") << sorted[i].second << " (" << sorted[i].first << ")";
    }
    out_ << "\n";
  }

  void write_slowest() {
    if (options_.slowest <= 0) return;
    std::vector<const Judged*> sorted;
    for (const Judged& judged : summary_.judged) sorted.push_back(&judged);
    const size_t count = std::min(sorted.size(), static_cast<size_t>(options_.slowest));
    std::partial_sort(
        sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count), sorted.end(),
        [](const Judged* a, const Judged* b) { return a->attempt.wall_ms > b->attempt.wall_ms; });
    out_ << "slowest:\n";
    for (size_t i = 0; i < count; ++i) {
      const std::string time = fixed_text(sorted[i]->attempt.wall_ms, 1);
      out_ << std::setw(10) << time << " ms  " << sorted[i]->id << "\n";
    }
  }

  // Writes how the calls were served. Every fallback is counted here.
  void write_served() {
    size_t native = 0, decomposed = 0, services = 0, host = 0;
    for (const Judged& judged : summary_.judged) {
      const Result& result = judged.result;
      const bool is_fallback = result.outcome == Outcome::kFallback;
      decomposed += is_fallback && result.cause == "decomposed";
      services += is_fallback && result.cause == "service";
      host += is_fallback && result.cause == "host";
      native += count_of(result.outcome) == Count::kPassed && result.details.contains("kernel");
    }
    out_ << "served: " << native << " cases on kernels of the backend, " << decomposed
         << " decomposed, ";
    if (services != 0) out_ << services << " in another dtype or at other offsets, ";
    out_ << host << " on the host";
    if (report_.dispatch) {
      const DispatchCounts& calls = *report_.dispatch;
      out_ << "; calls through the registry: " << calls.native << " native";
      if (calls.compiled != 0) out_ << " (" << calls.compiled << " as programs of one op)";
      if (calls.laid_out != 0) out_ << " (" << calls.laid_out << " with conversions to layouts)";
      out_ << ", " << calls.decomposed << " decomposed";
      if (calls.realigned != 0) out_ << " (" << calls.realigned << " on copies at aligned offsets)";
      out_ << ", " << calls.host << " on the host, " << calls.copied_scalars << " scalars copied";
    }
    const bool is_replay = !header_.session.setup.recording.path.empty();
    if (report_.dispatch && !is_replay) out_ << "; only a case that asks for a fallback gets one";
    out_ << "\n";
  }

  void write_fallbacks() {
    std::map<std::string, std::vector<const Judged*>> reasons;
    for (const Judged& judged : summary_.judged) {
      if (judged.result.outcome != Outcome::kFallback) continue;
      const auto why = judged.result.details.find(kWhyFallback);
      reasons[why == judged.result.details.end() ? judged.result.message : why->second].push_back(
          &judged);
    }
    if (reasons.empty()) out_ << "fallbacks: none\n";
    for (const auto& [why, members] : reasons) {
      out_ << "fallback " << members.front()->result.cause << "  " << members.front()->id;
      if (members.size() > 1) out_ << " and " << members.size() - 1 << " more";
      out_ << "\n    " << indented(why.substr(0, why.find_last_not_of("\n") + 1)) << "\n";
    }
  }

  void write_verdict() {
    const bool is_good = summary_.exit_code == kExitOk;
    out_ << "verdict: " << paint(is_good ? "1;32" : "1;31", summary_.verdict);
    if (summary_.exit_code == kExitTooSlow) {
      out_ << "; took " << static_cast<int>(report_.wall_seconds) << " s of a budget of "
           << header_.budget_seconds << " s";
    }
    if (!header_.folder.empty()) out_ << "   " << header_.folder;
    out_ << "   " << fixed_text(report_.wall_seconds, 1) << " s\n"
         << summary_.passed << " passed, " << summary_.failed << " failed, " << summary_.skipped
         << " skipped\n";
  }

  const RunHeader& header_;
  const RunReport& report_;
  const Summary& summary_;
  const PageOptions& options_;
  std::ostringstream out_;
};

}  // namespace

std::string verdict_page(const RunHeader& header, const RunReport& report, const Summary& summary,
                         const PageOptions& options) {
  return Page(header, report, summary, options).write();
}

}  // namespace bp::conformance
