// The HTML page of one run.
#include <algorithm>
#include <sstream>

#include "conformance/report/documents.hpp"
#include "conformance/report/html.hpp"
#include "conformance/report/sections.hpp"
#include "conformance/runner/setup.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr size_t kShownSlowest = 20;
constexpr size_t kShownReasons = 40;
constexpr size_t kMaxListed = 5000;  // The most cases that the table lists, because a browser has
                                     // to hold them.

constexpr PagePart kProfilesPart{"profiles", "Profiles and badges"};
constexpr PagePart kMapPart{"map", "Ops and dtypes"};
constexpr PagePart kSpeedPart{"speed", "Speed"};
constexpr PagePart kMemoryPart{"memory", "Memory"};
constexpr PagePart kNotRunPart{"not-run", "What was not shown, and why"};
constexpr PagePart kFailuresPart{"failures", "Failures by cause"};
constexpr PagePart kMarginsPart{"margins", "Errors by margin"};
constexpr PagePart kGroupsPart{"groups", "Groups of cases"};
constexpr PagePart kCasesPart{"cases", "Cases"};

class HtmlPage {
 public:
  HtmlPage(const RunHeader& header, const RunReport& report, const Summary& summary,
           const Speed* speed)
      : header_(header), report_(report), summary_(summary), speed_(speed) {}

  std::string write() {
    out_ << page_begin(header_.plugin + ": conformance");
    write_head();
    out_ << page_links(parts());
    write_profiles();
    write_map();
    write_speed();
    write_memory();
    write_not_run();
    write_failures();
    write_margins();
    write_groups();
    write_cases();
    out_ << page_end();
    return out_.str();
  }

 private:
  std::vector<PagePart> parts() const {
    std::vector<PagePart> parts = {kProfilesPart, kMapPart, kSpeedPart, kMemoryPart, kNotRunPart};
    if (!summary_.failures.empty()) parts.push_back(kFailuresPart);
    parts.insert(parts.end(), {kMarginsPart, kGroupsPart, kCasesPart});
    return parts;
  }

  void write_head() {
    const char* color = summary_.exit_code == kExitOk ? "good" : "bad";
    out_ << "<h1>" << escaped(device_name(report_.hello)) << "</h1>\n<p class=\"verdict " << color
         << "\">" << escaped(summary_.verdict) << "</p>\n<p>"
         << escaped(plugin_text(header_, report_)) << "<br>" << escaped(run_text(header_, report_))
         << ", bp-conformance suite " << kSuiteVersion << "<br>" << summary_.passed << " passed, "
         << summary_.failed << " failed, " << summary_.skipped << " skipped</p>\n";
  }

  void write_profiles() {
    out_ << heading(kProfilesPart)
         << "<p class=\"soft\">A profile is a part of the ABI that a backend claims as a whole.</p>"
            "\n<ul class=\"cards\">\n";
    for (const ProfileStanding& profile : profiles_of(report_, summary_)) {
      out_ << "<li class=\"" << class_of(profile) << "\"><b>" << profile.name << "</b>"
           << standing_text(profile) << "<br><span class=\"soft\">" << profile.meaning
           << "</span></li>\n";
    }
    out_ << "</ul>\n<h3>Badges</h3>\n<ul class=\"cards\">\n";
    for (const Badge& badge : badges_of(header_, report_, summary_)) {
      out_ << "<li class=\"" << class_of(badge) << "\"><b>" << badge.name << "</b>" << badge.text
           << "<br><span class=\"soft\">needs: " << badge.needs << "</span></li>\n";
    }
    out_ << "</ul>\n";
  }

  void write_map() {
    const Coverage coverage(summary_);
    const std::vector<std::string> dtypes = coverage.dtypes();
    out_ << heading(kMapPart);
    if (dtypes.empty()) {
      out_ << "<p>The run has no cases of ops.</p>\n";
      return;
    }
    out_ << heat_key()
         << "<table class=\"heat wide\"><caption>Calls of each op by dtype, over all "
            "layouts and ranks</caption>\n<thead><tr><th scope=\"col\">op</th>";
    for (const std::string& dtype : dtypes) out_ << "<th scope=\"col\">" << dtype << "</th>";
    out_ << "</tr></thead>\n<tbody>\n";
    for (const Coverage::OpRow& row : coverage.by_dtype()) {
      out_ << "<tr><th scope=\"row\">" << escaped(row.op) << "</th>";
      for (const std::string& dtype : dtypes) {
        const auto found = row.dtypes.find(dtype);
        if (found == row.dtypes.end()) {
          out_ << cell("", "empty");
        } else {
          out_ << labelled_cell(dtype, cell_text(found->second), class_of(found->second));
        }
      }
      out_ << "</tr>\n";
    }
    out_ << "</tbody></table>\n";
  }

  void write_speed() {
    out_ << heading(kSpeedPart);
    if (speed_ == nullptr || speed_->is_empty()) {
      out_
          << "<p>No speed was measured for this page. <code>bp-conformance perf</code> measures "
             "it, and <code>bp-conformance report DIR --perf perf.json</code> shows it here.</p>\n";
      return;
    }
    const bool is_other =
        report_.hello.is_object() && speed_->sha256 != report_.hello.value("sha256", "");
    if (is_other) {
      out_ << "<p class=\"bad\">Another build of the plugin was measured: sha256 "
           << escaped(speed_->sha256.substr(0, 12)) << ".</p>\n";
    }
    write_ceilings();
    out_ << "<table class=\"wide\"><caption>The roof is the time that the measured ceilings of the "
            "device allow for the bytes and operations of a call. "
         << speed_->rows.size() << " calls were measured, " << speed_->failed
         << " were wrong, and no kernel takes " << speed_->not_run
         << ".</caption>\n<thead><tr><th scope=\"col\">call</th><th "
            "scope=\"col\">share of the roof</th><th scope=\"col\">grade</th><th scope=\"col\">"
            "time</th><th scope=\"col\">rate</th></tr></thead>\n<tbody>\n";
    for (const SpeedRow& row : speed_->rows) write_speed_row(row);
    out_ << "</tbody></table>\n";
  }

  void write_ceilings() {
    out_ << "<p>Ceilings: copy " << bytes_rate_text(speed_->copy_bytes_per_s) << ", read "
         << bytes_rate_text(speed_->read_bytes_per_s) << ", write "
         << bytes_rate_text(speed_->write_bytes_per_s) << "; a launch takes "
         << duration_text(speed_->launch_s);
    for (const auto& [dtype, flops] : speed_->flops_per_s) {
      out_ << "; matmul " << escaped(dtype) << " " << flops_rate_text(flops);
    }
    out_ << "</p>\n";
  }

  void write_speed_row(const SpeedRow& row) {
    const std::string share =
        row.fraction > 0 ? bar(row.fraction, fixed_text(row.fraction * 100, 0) + " %") : "no roof";
    const char grade = row.grade.empty() ? '-' : row.grade[0];
    const char* color = grade == 'A' || grade == 'B' ? "good" : grade == 'F' ? "bad" : "other";
    const std::string rate =
        row.is_flops_bound ? flops_rate_text(row.flops_per_s) : bytes_rate_text(row.bytes_per_s);
    out_ << "<tr><th scope=\"row\"><code>" << escaped(row.id) << "</code></th>"
         << cell(share, "whole") << labelled_cell("grade", escaped(row.grade), color)
         << labelled_cell("time", duration_text(row.median_s), "n")
         << labelled_cell("rate", rate, "n") << "</tr>\n";
  }

  void write_memory() {
    constexpr const char* kPrefixes[] = {"memory.", "virtual_memory.", "load.",
                                         "kernel.launch_stays_between_pages"};
    size_t right = 0, all = 0;
    for (const Judged& judged : summary_.judged) {
      const bool counts = std::ranges::any_of(
          kPrefixes, [&](const char* prefix) { return judged.id.starts_with(prefix); });
      const Count count = count_of(judged.result.outcome);
      if (!counts || count == Count::kSkipped) continue;
      ++all;
      right += count == Count::kPassed;
    }
    size_t damaged = 0, unwritten = 0;
    for (const Judged& judged : summary_.judged) {
      if (count_of(judged.result.outcome) != Count::kFailed) continue;
      damaged += judged.result.cause == "canary" || judged.result.cause == "input_modified";
      unwritten += judged.result.cause == "unwritten";
    }
    out_ << heading(kMemoryPart) << "<p>Heaps: " << escaped(memory_text(report_.hello))
         << "</p>\n<p>" << right << " of " << all
         << " cases of memory, reloading and pages without access that ran are right. Guard bytes "
            "lie on both sides of each tensor of each call: "
         << damaged << " cases wrote outside of their outputs, and " << unwritten
         << " left elements unwritten.</p>\n";
  }

  void write_not_run() {
    using enum Outcome;
    out_ << heading(kNotRunPart);
    const auto write_kind = [&](const char* title, std::initializer_list<Outcome> outcomes) {
      const auto reasons = reasons_of(summary_, outcomes);
      if (reasons.empty()) return;
      out_ << "<h3>" << title << ": " << summary_.count(outcomes) << "</h3>\n<ul>\n";
      for (size_t i = 0; i < reasons.size() && i < kShownReasons; ++i) {
        out_ << "<li>" << reasons[i].first << " &times; " << escaped(reasons[i].second)
             << "</li>\n";
      }
      if (reasons.size() > kShownReasons) {
        out_ << "<li>and " << reasons.size() - kShownReasons
             << " other reasons, which results.jsonl has</li>\n";
      }
      out_ << "</ul>\n";
    };
    write_kind("Not claimed by the backend", {kNotSupported});
    write_kind("Not run", {kSkip});
    write_kind("Right only by the host or by a decomposition", {kFallback});
    write_kind("Waived", {kWaived});
    write_kind("Proved too little", {kMistrusted});
    if (summary_.skipped == 0) out_ << "<p>Every selected case was run and judged.</p>\n";
  }

  void write_failures() {
    if (summary_.failures.empty()) return;
    out_ << heading(kFailuresPart);
    for (const FailureGroup& group : summary_.failures) {
      const Judged& first = summary_.judged[group.members.front()];
      out_ << "<details><summary><b>" << escaped(group.title()) << "</b> " << escaped(group.label)
           << ": " << group.members.size() << " &times; " << outcome_name(group.outcome)
           << "</summary>\n<p>" << escaped(first.result.message) << "</p>\n";
      for (const std::string& note : first.result.notes) {
        out_ << "<p>also: " << escaped(note) << "</p>\n";
      }
      for (const char* name : {kTagsDetail, kInputsDetail, kCallDetail}) {
        const auto detail = first.result.details.find(name);
        if (detail == first.result.details.end()) continue;
        out_ << "<p>" << (name == kTagsDetail ? "one of the requirements" : name) << ": "
             << escaped(detail->second) << "</p>\n";
      }
      out_ << "<pre><code>" << escaped(repro_line(header_, first)) << "</code></pre>\n<ul>\n";
      for (const size_t member : group.members) {
        out_ << "<li><code>" << escaped(summary_.judged[member].id) << "</code></li>\n";
      }
      out_ << "</ul></details>\n";
    }
  }

  void write_margins() {
    const auto histograms = margin_histograms(summary_);
    out_ << heading(kMarginsPart);
    if (histograms.empty()) {
      out_ << "<p>No right case has an error to measure.</p>\n";
      return;
    }
    out_
        << "<table class=\"wide\"><caption>The largest error of each right case as a share of what "
           "is allowed, in tenths from 0 to 1; the last bar counts those beyond, which a "
           "declaration allows.</caption>\n<thead><tr><th scope=\"col\">op</th><th scope=\"col\">"
           "cases by tenth</th><th scope=\"col\" class=\"n\">cases</th><th scope=\"col\" "
           "class=\"n\">in the upper half</th></tr></thead>\n<tbody>\n";
    for (const auto& [name, counts] : histograms) {
      size_t all = 0, upper = 0;
      std::string words = "cases by tenth:";
      for (size_t i = 0; i < counts.size(); ++i) {
        all += counts[i];
        upper += i >= counts.size() / 2 ? counts[i] : 0;
        words += " " + std::to_string(counts[i]);
      }
      out_ << "<tr><th scope=\"row\">" << escaped(name) << "</th>"
           << cell(histogram({counts.begin(), counts.end()}, words))
           << labelled_cell("cases", std::to_string(all), "n")
           << labelled_cell("in the upper half", std::to_string(upper), "n") << "</tr>\n";
    }
    out_ << "</tbody></table>\n";
  }

  void write_groups() {
    out_ << heading(kGroupsPart)
         << "<table><thead><tr><th scope=\"col\">group</th><th scope=\"col\" class=\"n\">right</th>"
            "<th scope=\"col\" class=\"n\">of</th></tr></thead>\n<tbody>\n";
    for (const auto& [name, count] : summary_.groups) {
      out_ << "<tr><th scope=\"row\">" << escaped(name) << "</th>"
           << cell(std::to_string(count.right), "n") << cell(std::to_string(count.total), "n")
           << "</tr>\n";
    }
    out_ << "</tbody></table>\n<table><thead><tr><th scope=\"col\">status</th><th scope=\"col\" "
            "class=\"n\">cases</th></tr></thead>\n<tbody>\n";
    for (const auto& [outcome, count] : summary_.outcomes) {
      out_ << "<tr>" << cell(outcome_name(outcome), class_of(outcome))
           << cell(std::to_string(count), "n") << "</tr>\n";
    }
    out_ << "</tbody></table>\n";
  }

  void write_case_rows(const char* title, const std::vector<const Judged*>& rows) {
    out_ << "<details class=\"screen\"><summary>" << title
         << "</summary>\n<table><thead><tr><th scope=\"col\">status</th><th scope=\"col\" "
            "class=\"n\">ms</th><th scope=\"col\">case</th></tr></thead>\n<tbody>\n";
    for (const Judged* judged : rows) {
      out_ << "<tr>" << cell(outcome_name(judged->result.outcome), class_of(judged->result.outcome))
           << cell(fixed_text(judged->attempt.wall_ms, 1), "n") << "<td><code>"
           << escaped(judged->id) << "</code></td></tr>\n";
    }
    out_ << "</tbody></table></details>\n";
  }

  void write_cases() {
    std::vector<const Judged*> all;
    for (const Judged& judged : summary_.judged) all.push_back(&judged);
    std::vector<const Judged*> slowest = all;
    std::ranges::stable_sort(slowest, std::ranges::greater(),
                             [](const Judged* judged) { return judged->attempt.wall_ms; });
    slowest.resize(std::min(slowest.size(), kShownSlowest));
    all.resize(std::min(all.size(), kMaxListed));
    out_ << heading(kCasesPart) << "<p>" << summary_.judged.size() << " results"
         << (all.size() < summary_.judged.size() ? "; results.jsonl has them all" : "") << "</p>\n";
    write_case_rows("The slowest", slowest);
    write_case_rows(all.size() < summary_.judged.size() ? "The first 5000" : "All", all);
  }

  const RunHeader& header_;
  const RunReport& report_;
  const Summary& summary_;
  const Speed* speed_;
  std::ostringstream out_;
};

}  // namespace

std::string html_page(const RunHeader& header, const RunReport& report, const Summary& summary,
                      const Speed* speed) {
  return HtmlPage(header, report, summary, speed).write();
}

}  // namespace bp::conformance
