#include "conformance/report/documents.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr size_t kShownSlowest = 20;
constexpr size_t kMaxListed = 5000;  // The most cases that the table lists, because a browser has
                                     // to hold them.

constexpr const char* kStyle = R"(
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;vertical-align:top}
tr:nth-child(even){background:#f4f4f4}td.n{text-align:right}
code{font-size:.9em}.good{color:#1a7f37}.bad{color:#cf222e}.other{color:#9a6700}
.bar{display:inline-block;width:.8em;background:#5b8def;vertical-align:bottom}
details{margin:.6em 0}summary{cursor:pointer})";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

const char* class_of(Outcome outcome) {
  const Count count = count_of(outcome);
  return count == Count::kPassed ? "good" : count == Count::kFailed ? "bad" : "other";
}

std::string milliseconds(double value) { return fixed_text(value, 1); }

std::string plugin_text(const RunHeader& header, const RunReport& report) {
  if (!report.hello.is_object() || !report.hello.contains("plugin")) return header.plugin;
  const json& plugin = report.hello.at("plugin");
  return plugin.value("name", "") + " " + plugin.value("version", "") + ", abi " +
         plugin.value("abi", "") + ", sha256 " + report.hello.value("sha256", "").substr(0, 12);
}

std::string run_text(const RunHeader& header, const RunReport& report) {
  char seed[32];
  std::snprintf(seed, sizeof(seed), "0x%llx", static_cast<unsigned long long>(header.seed));
  return std::string("tier ") + tier_name(header.tier) + ", seed " + seed + ", " +
         fixed_text(report.wall_seconds, 1) + " s";
}

std::vector<const Judged*> slowest(const Summary& summary) {
  std::vector<const Judged*> sorted;
  for (const Judged& judged : summary.judged) sorted.push_back(&judged);
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const Judged* judged) { return judged->attempt.wall_ms; });
  sorted.resize(std::min(sorted.size(), kShownSlowest));
  return sorted;
}

class HtmlPage {
 public:
  HtmlPage(const RunHeader& header, const RunReport& report, const Summary& summary)
      : header_(header), report_(report), summary_(summary) {}

  std::string write() {
    out_ << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>"
         << escaped(header_.plugin) << ": conformance</title>\n<style>" << kStyle
         << "\n</style></head><body>\n";
    write_head();
    write_groups();
    write_failures();
    write_margins();
    write_slowest();
    write_cases();
    out_ << "</body></html>\n";
    return out_.str();
  }

 private:
  void write_head() {
    const char* color = summary_.exit_code == kExitOk ? "good" : "bad";
    out_ << "<h1>bp-conformance, suite " << kSuiteVersion << "</h1>\n<p><b class=\"" << color
         << "\">" << escaped(summary_.verdict) << "</b></p>\n<p>"
         << escaped(plugin_text(header_, report_)) << "<br>" << escaped(run_text(header_, report_))
         << "<br>" << summary_.passed << " passed, " << summary_.failed << " failed, "
         << summary_.skipped << " skipped</p>\n<table><tr><th>status</th><th>cases</th></tr>\n";
    for (const auto& [outcome, count] : summary_.outcomes) {
      out_ << "<tr><td class=\"" << class_of(outcome) << "\">" << outcome_name(outcome)
           << "</td><td class=\"n\">" << count << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void write_groups() {
    out_ << "<h2>Groups</h2>\n<table><tr><th>group</th><th>right</th><th>of</th></tr>\n";
    for (const auto& [name, count] : summary_.groups) {
      out_ << "<tr><td>" << escaped(name) << "</td><td class=\"n\">" << count.right
           << "</td><td class=\"n\">" << count.total << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void write_failures() {
    if (summary_.failures.empty()) return;
    out_ << "<h2>Failures by cause</h2>\n";
    for (const FailureGroup& group : summary_.failures) {
      const Judged& first = summary_.judged[group.members.front()];
      out_ << "<details><summary><b>" << escaped(group.title()) << "</b> " << escaped(group.label)
           << ": " << group.members.size() << " &times; " << outcome_name(group.outcome)
           << "</summary>\n<p>" << escaped(first.result.message) << "</p>\n";
      for (const std::string& note : first.result.notes) {
        out_ << "<p>also: " << escaped(note) << "</p>\n";
      }
      out_ << "<p><code>" << escaped(repro_line(header_, first)) << "</code></p>\n<ul>\n";
      for (const size_t member : group.members) {
        out_ << "<li><code>" << escaped(summary_.judged[member].id) << "</code></li>\n";
      }
      out_ << "</ul></details>\n";
    }
  }

  void write_margins() {
    const auto histograms = margin_histograms(summary_);
    if (histograms.empty()) return;
    out_ << "<h2>Margins</h2>\n<p>The largest error of a right case as a share of what is allowed, "
            "in tenths; the last bar is beyond.</p>\n<table>\n";
    for (const auto& [name, counts] : histograms) {
      const size_t most = *std::ranges::max_element(counts);
      out_ << "<tr><td>" << escaped(name) << "</td><td>";
      for (const size_t count : counts) {
        out_ << "<span class=\"bar\" title=\"" << count
             << "\" style=\"height:" << (count == 0 ? 0 : 1 + count * 30 / most) << "px\"></span>";
      }
      out_ << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void write_slowest() {
    out_ << "<h2>Slowest</h2>\n<table><tr><th>ms</th><th>case</th></tr>\n";
    for (const Judged* judged : slowest(summary_)) {
      out_ << "<tr><td class=\"n\">" << milliseconds(judged->attempt.wall_ms) << "</td><td><code>"
           << escaped(judged->id) << "</code></td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void write_cases() {
    const size_t listed = std::min(summary_.judged.size(), kMaxListed);
    out_ << "<h2>Cases</h2>\n<details><summary>" << listed << " of " << summary_.judged.size()
         << (listed < summary_.judged.size() ? "; results.jsonl has them all" : "")
         << "</summary>\n<table><tr><th>status</th><th>ms</th><th>case</th></tr>\n";
    for (size_t i = 0; i < listed; ++i) {
      const Judged& judged = summary_.judged[i];
      out_ << "<tr><td class=\"" << class_of(judged.result.outcome) << "\">"
           << outcome_name(judged.result.outcome) << "</td><td class=\"n\">"
           << milliseconds(judged.attempt.wall_ms) << "</td><td><code>" << escaped(judged.id)
           << "</code></td></tr>\n";
    }
    out_ << "</table></details>\n";
  }

  const RunHeader& header_;
  const RunReport& report_;
  const Summary& summary_;
  std::ostringstream out_;
};

// Returns `text` as one line of Markdown in which no character begins markup or ends a table cell.
std::string markdown(const std::string& text) {
  std::string result;
  for (const char c : clean_text(text, LineBreaks::kEscape)) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      if (std::string_view("\\`*_{}[]>|#~!").find(c) != std::string_view::npos) result += '\\';
      result += c;
    }
  }
  return result;
}

// Returns the first line of a text, for a table cell.
std::string cell(const std::string& text) { return markdown(text.substr(0, text.find('\n'))); }

}  // namespace

std::map<std::string, MarginHistogram> margin_histograms(const Summary& summary) {
  std::map<std::string, MarginHistogram> histograms;
  for (const Judged& judged : summary.judged) {
    const auto margin = judged.result.metrics.find("margin");
    const bool is_right = count_of(judged.result.outcome) == Count::kPassed;
    if (!is_right || margin == judged.result.metrics.end() || judged.which == nullptr) continue;
    const char* op = judged.which->op == 0 ? nullptr : bp_op_name(judged.which->op);
    MarginHistogram& counts = histograms[op == nullptr ? judged.which->group : op];
    // A margin that is NaN does not count.
    const double tenths = std::clamp(margin->second * 10, 0.0, 10.0);
    ++counts[tenths == tenths ? static_cast<size_t>(tenths) : counts.size() - 1];
  }
  return histograms;
}

std::string html_page(const RunHeader& header, const RunReport& report, const Summary& summary) {
  return HtmlPage(header, report, summary).write();
}

std::string markdown_page(const RunHeader& header, const RunReport& report,
                          const Summary& summary) {
  std::ostringstream out;
  out << "# " << markdown(header.plugin) << "\n\n**" << markdown(summary.verdict) << "**\n\n"
      << markdown(plugin_text(header, report)) << "; suite " << kSuiteVersion << ", "
      << run_text(header, report) << "\n\n"
      << summary.passed << " passed, " << summary.failed << " failed, " << summary.skipped
      << " skipped\n\n| status | cases |\n|---|---:|\n";
  for (const auto& [outcome, count] : summary.outcomes) {
    out << "| " << outcome_name(outcome) << " | " << count << " |\n";
  }
  out << "\n| group | right | of |\n|---|---:|---:|\n";
  for (const auto& [name, count] : summary.groups) {
    out << "| " << cell(name) << " | " << count.right << " | " << count.total << " |\n";
  }
  if (summary.failures.empty()) return out.str();
  out << "\n## Failures by cause\n\n| cause | cases | status | what |\n|---|---:|---|---|\n";
  for (const FailureGroup& group : summary.failures) {
    const Judged& first = summary.judged[group.members.front()];
    out << "| " << cell(group.title()) << " <code>" << cell(group.label) << "</code> | "
        << group.members.size() << " | " << outcome_name(group.outcome) << " | "
        << cell(first.result.message) << " |\n";
  }
  out << "\n";
  for (const FailureGroup& group : summary.failures) {
    const std::string repro = repro_line(header, summary.judged[group.members.front()]);
    out << "    " << clean_text(repro, LineBreaks::kEscape) << "\n";
  }
  return out.str();
}

}  // namespace bp::conformance
