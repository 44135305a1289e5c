#include "conformance/report/comparison.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "conformance/report/documents.hpp"
#include "conformance/report/html.hpp"
#include "conformance/report/sections.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kColumnWidth = 30;

constexpr PagePart kGlance{"glance", "At a glance"};
constexpr PagePart kStandings{"profiles", "Profiles and badges"};
constexpr PagePart kComparedOps{"ops", "Ops"};
constexpr PagePart kComparedSpeed{"speed", "Speed"};

using Runs = std::vector<ComparedRun>;

std::string grounds_of(const RestoredRun& run) { return run_text(run.header, run.report); }

std::string counts_of(const RestoredRun& run) {
  const Summary& s = run.summary;
  return std::to_string(s.passed) + " passed, " + std::to_string(s.failed) + " failed, " +
         std::to_string(s.skipped) + " skipped";
}

std::string dtypes_of(const RestoredRun& run) {
  const nlohmann::json* target = target_of(run.report.hello);
  if (target == nullptr) return "unknown";
  std::string text;
  for (const nlohmann::json& name : target->at("dtypes")) {
    text += (text.empty() ? "" : " ") + name.get<std::string>();
  }
  return text;
}

std::string speed_words(const ComparedRun& compared) {
  double sum = 0;
  size_t count = 0;
  for (const SpeedRow& row : compared.speed.rows) {
    if (row.fraction > 0) sum += row.fraction, ++count;
  }
  if (count == 0) return "not measured";
  return fixed_text(sum / static_cast<double>(count) * 100, 0) + " % of the roof, mean of " +
         std::to_string(count) + " calls; copy " + bytes_rate_text(compared.speed.copy_bytes_per_s);
}

// One fact of each run.
struct Fact {
  const char* name;
  std::function<std::string(const ComparedRun&)> text;
};
const std::vector<Fact>& facts() {
  static const std::vector<Fact> all = {
      {"verdict", [](const ComparedRun& r) { return r.run->summary.verdict; }},
      {"cases", [](const ComparedRun& r) { return counts_of(*r.run); }},
      {"device", [](const ComparedRun& r) { return device_name(r.run->report.hello); }},
      {"backend", [](const ComparedRun& r) { return plugin_text(r.run->header, r.run->report); }},
      {"run", [](const ComparedRun& r) { return grounds_of(*r.run); }},
      {"memory", [](const ComparedRun& r) { return memory_text(r.run->report.hello); }},
      {"dtypes", [](const ComparedRun& r) { return dtypes_of(*r.run); }},
      {"speed", speed_words},
  };
  return all;
}

// Returns what makes the runs hard to compare: other tiers, seeds or selections.
std::vector<std::string> warnings_of(const Runs& runs) {
  std::vector<std::string> warnings;
  const RunHeader& first = runs.front().run->header;
  const auto differ = [&](auto member) {
    return std::ranges::any_of(
        runs, [&](const ComparedRun& r) { return r.run->header.*member != first.*member; });
  };
  if (differ(&RunHeader::tier)) warnings.emplace_back("The runs have different tiers.");
  if (differ(&RunHeader::selection_sha256)) {
    warnings.emplace_back("The runs have different cases.");
  }
  if (differ(&RunHeader::seed)) warnings.emplace_back("The runs have different seeds.");
  return warnings;
}

class ComparisonPage {
 public:
  explicit ComparisonPage(const Runs& runs) : runs_(runs) {
    for (const ComparedRun& compared : runs) coverages_.emplace_back(compared.run->summary);
  }

  std::string write() {
    std::string title;
    for (const ComparedRun& compared : runs_) {
      title += (title.empty() ? "" : " / ") + compared.name;
    }
    out_ << page_begin(title + ": comparison") << "<h1>Comparison of " << runs_.size()
         << " runs</h1>\n";
    for (const std::string& warning : warnings_of(runs_)) {
      out_ << "<p class=\"verdict other\">" << warning << "</p>\n";
    }
    out_ << page_links({kGlance, kStandings, kComparedOps, kComparedSpeed});
    write_glance();
    write_profiles();
    write_ops();
    write_speed();
    out_ << page_end();
    return out_.str();
  }

 private:
  void begin_table(const char* css_class, const std::string& caption, const char* first) {
    out_ << "<table class=\"" << css_class << "\"><caption>" << caption
         << "</caption>\n<thead><tr><th scope=\"col\">" << first << "</th>";
    for (const ComparedRun& compared : runs_) {
      out_ << "<th scope=\"col\">" << escaped(compared.name) << "</th>";
    }
    out_ << "</tr></thead>\n<tbody>\n";
  }
  void begin_row(const std::string& name) {
    out_ << "<tr><th scope=\"row\">" << escaped(name) << "</th>";
  }
  void add_cell(size_t run, const std::string& text, const std::string& css_class) {
    out_ << labelled_cell(runs_[run].name + ":", text, css_class);
  }
  void end_row() { out_ << "</tr>\n"; }
  void end_table() { out_ << "</tbody></table>\n"; }

  void write_glance() {
    out_ << heading(kGlance);
    begin_table("wide", "Each column is one run.", "");
    for (const Fact& fact : facts()) {
      begin_row(fact.name);
      for (size_t i = 0; i < runs_.size(); ++i) {
        const bool is_verdict = &fact == &facts().front();
        const bool is_good = runs_[i].run->summary.exit_code == kExitOk;
        add_cell(i, escaped(fact.text(runs_[i])),
                 std::string("whole ") + (!is_verdict ? ""
                                          : is_good   ? "good"
                                                      : "bad"));
      }
      end_row();
    }
    end_table();
  }

  void write_profiles() {
    out_ << heading(kStandings);
    begin_table("wide", "What each run shows of the profiles and badges.", "profile");
    std::vector<std::vector<ProfileStanding>> profiles;
    std::vector<std::vector<Badge>> badges;
    for (const ComparedRun& compared : runs_) {
      profiles.push_back(profiles_of(compared.run->report, compared.run->summary));
      badges.push_back(
          badges_of(compared.run->header, compared.run->report, compared.run->summary));
    }
    for (size_t row = 0; row < profiles.front().size(); ++row) {
      begin_row(profiles.front()[row].name);
      for (size_t i = 0; i < runs_.size(); ++i) {
        add_cell(i, standing_text(profiles[i][row]), class_of(profiles[i][row]));
      }
      end_row();
    }
    for (size_t row = 0; row < badges.front().size(); ++row) {
      begin_row("badge " + badges.front()[row].name);
      for (size_t i = 0; i < runs_.size(); ++i) {
        add_cell(i, badges[i][row].text, class_of(badges[i][row]));
      }
      end_row();
    }
    end_table();
  }

  // Returns the names of the ops of all runs, in the order of their first run.
  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const Coverage& coverage : coverages_) {
      for (const Coverage::OpRow& row : coverage.by_dtype()) {
        if (std::ranges::find(names, row.op) == names.end()) names.push_back(row.op);
      }
    }
    return names;
  }

  // Writes the counts of an op over all dtypes, and the dtypes that work.
  void add_op_cell(size_t run, const std::vector<Coverage::OpRow>& rows, const std::string& op) {
    const auto found = std::ranges::find(rows, op, &Coverage::OpRow::op);
    if (found == rows.end()) return add_cell(run, "no case", "none");
    ServedCounts sum{};
    std::string dtypes;
    for (const auto& [dtype, counts] : found->dtypes) {
      for (size_t i = 0; i < kServedCount; ++i) sum[i] += counts[i];
      const bool works = worst_of(counts) == Served::kNative;
      if (works) dtypes += " " + dtype;
    }
    add_cell(run,
             cell_text(sum) + "<span class=\"soft\">" +
                 (dtypes.empty() ? " no dtype" : escaped(dtypes)) + "</span>",
             class_of(sum));
  }

  void write_ops() {
    out_ << heading(kComparedOps) << heat_key();
    begin_table("wide", "The calls of each op, and the dtypes whose claimed calls are all right.",
                "op");
    std::vector<std::vector<Coverage::OpRow>> rows;
    for (const Coverage& coverage : coverages_) rows.push_back(coverage.by_dtype());
    for (const std::string& op : ops()) {
      begin_row(op);
      for (size_t i = 0; i < runs_.size(); ++i) add_op_cell(i, rows[i], op);
      end_row();
    }
    end_table();
  }

  void write_speed() {
    out_ << heading(kComparedSpeed);
    std::map<std::string, std::vector<const SpeedRow*>> calls;
    for (size_t i = 0; i < runs_.size(); ++i) {
      for (const SpeedRow& row : runs_[i].speed.rows) {
        auto& of_runs = calls[row.id];
        of_runs.resize(runs_.size());
        of_runs[i] = &row;
      }
    }
    if (calls.empty()) {
      out_ << "<p>No speed was measured. <code>bp-conformance report --compare A B --perf A.json "
              "--perf B.json</code> shows it here.</p>\n";
      return;
    }
    begin_table("wide", "The time of each call, and its share of the roof of its own device.",
                "call");
    for (const auto& [id, of_runs] : calls) {
      begin_row(id);
      for (size_t i = 0; i < runs_.size(); ++i) {
        add_cell(i, of_runs[i] == nullptr ? "not measured" : speed_text(*of_runs[i]), "whole");
      }
      end_row();
    }
    end_table();
  }

  static std::string speed_text(const SpeedRow& row) {
    std::string time = duration_text(row.median_s);
    if (row.fraction <= 0) return time;
    return bar(row.fraction, fixed_text(row.fraction * 100, 0) + " %, " + time);
  }

  const Runs& runs_;
  std::vector<Coverage> coverages_;
  std::ostringstream out_;
};

// Cuts a text to a column of the terminal, and says so with dots.
std::string column(const std::string& text) {
  std::string cut = text.size() <= kColumnWidth ? text : text.substr(0, kColumnWidth - 3) + "...";
  cut.append(kColumnWidth + 2 - cut.size(), ' ');
  return cut;
}

}  // namespace

std::string comparison_page(const std::vector<ComparedRun>& runs) {
  return ComparisonPage(runs).write();
}

std::string comparison_text(const std::vector<ComparedRun>& runs) {
  std::string text;
  const auto add_line = [&](const std::string& name, const auto& of_run) {
    std::string head = name;
    head.resize(std::max<size_t>(head.size(), 10), ' ');
    text += head;
    for (const ComparedRun& compared : runs) text += column(of_run(compared));
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  add_line("", [](const ComparedRun& r) { return r.name; });
  for (const Fact& fact : facts()) add_line(fact.name, fact.text);
  const auto rows = profiles_of(runs.front().run->report, runs.front().run->summary);
  for (size_t row = 0; row < rows.size(); ++row) {
    add_line(rows[row].name, [row](const ComparedRun& r) {
      return standing_text(profiles_of(r.run->report, r.run->summary)[row]);
    });
  }
  for (const std::string& warning : warnings_of(runs)) text += "warning: " + warning + "\n";
  return text;
}

}  // namespace bp::conformance
