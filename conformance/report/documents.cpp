#include "conformance/report/documents.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {

std::string plugin_text(const RunHeader& header, const RunReport& report) {
  if (!report.hello.is_object() || !report.hello.contains("plugin")) return header.plugin;
  const nlohmann::json& plugin = report.hello.at("plugin");
  return plugin.value("name", "") + " " + plugin.value("version", "") + ", abi " +
         plugin.value("abi", "") + ", sha256 " + report.hello.value("sha256", "").substr(0, 12);
}

std::string run_text(const RunHeader& header, const RunReport& report) {
  char seed[32];
  std::snprintf(seed, sizeof(seed), "0x%llx", static_cast<unsigned long long>(header.seed));
  return std::string("tier ") + tier_name(header.tier) + ", seed " + seed + ", " +
         fixed_text(report.wall_seconds, 1) + " s";
}

namespace {

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
std::string markdown_cell(const std::string& text) {
  return markdown(text.substr(0, text.find('\n')));
}

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
    out << "| " << markdown_cell(name) << " | " << count.right << " | " << count.total << " |\n";
  }
  if (summary.failures.empty()) return out.str();
  out << "\n## Failures by cause\n\n| cause | cases | status | what |\n|---|---:|---|---|\n";
  for (const FailureGroup& group : summary.failures) {
    const Judged& first = summary.judged[group.members.front()];
    out << "| " << markdown_cell(group.title()) << " <code>" << markdown_cell(group.label)
        << "</code> | " << group.members.size() << " | " << outcome_name(group.outcome) << " | "
        << markdown_cell(first.result.message) << " |\n";
  }
  out << "\n";
  for (const FailureGroup& group : summary.failures) {
    const std::string repro = repro_line(header, summary.judged[group.members.front()]);
    out << "    " << clean_text(repro, LineBreaks::kEscape) << "\n";
  }
  return out.str();
}

}  // namespace bp::conformance
