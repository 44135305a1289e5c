#include "conformance/perf/perf_report.hpp"

#include <locale.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "conformance/runner/setup.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kIdWidth = 42;
constexpr size_t kReasonWidth = 90;
constexpr size_t kSlowest = 5;
constexpr size_t kShownChanges = 20;

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  // In every locale of the program: a table has points, not commas.
  const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", nullptr));
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  freelocale(uselocale(before));
  return text;
}

// Returns the time with three digits and a unit: "1.23 ms".
std::string seconds_text(double seconds) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  const Unit* unit = std::ranges::find_if(kUnits, [&](const Unit& u) { return seconds >= u.size; });
  if (unit == std::end(kUnits)) --unit;
  const double value = seconds / unit->size;
  return format("%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, unit->name);
}

std::string rate_text(double per_second) {
  const double giga = per_second / 1e9;
  return format("%.*f", giga < 10 ? 2 : giga < 100 ? 1 : 0, giga);
}

std::string size_text(uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < 1u << 20 ? format("%.0f KiB", size / (1 << 10))
                          : format("%.1f MiB", size / (1 << 20));
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string painted(const std::string& text, const char* code, bool has_color) {
  return has_color ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

// Returns the share as "3.1 %", or "-" if it is unknown.
std::string share_text(double share) {
  return std::isinf(share) ? "-" : format("%.1f %%", share * 100);
}

// Returns the interval of the fraction in percent of the roof: "72-81".
std::string range_text(const PerfLine& line) {
  if (line.is_too_noisy()) return "-";
  return format("%.0f-%.0f", line.least() * 100, line.most() * 100);
}

const char* color_of(const PerfLine& line) {
  if (!line.is_graded()) return "0";
  const char grade = line.best_grade;
  return grade == 'F' ? "31" : grade <= 'B' ? "32" : "33";
}

const nlohmann::json& target_of(const nlohmann::json& hello) {
  return hello.at("targets").at(hello.value("target", size_t{0}));
}

// Returns the line of a call that was not measured, or that is wrong.
std::string status_line(const PerfLine& line, bool has_color) {
  std::string message = line.result.message;
  message = message.substr(0, message.find('\n'));
  if (!line.is_failed() && message.size() > kReasonWidth) {
    message = message.substr(0, kReasonWidth) + " ... (perf.json has it all)";
  }
  const std::string status = outcome_name(line.result.outcome);
  return padded(line.id, kIdWidth) + " " +
         (line.is_failed() ? painted(status, "31", has_color) : status) +
         (message.empty() ? "" : ": " + message) + "\n";
}

std::string change_text(const PerfChange& change) {
  return format("  %s %9s -> %9s  %+5.0f %% +- %.0f %%\n", padded(change.id, kIdWidth).c_str(),
                seconds_text(change.before.seconds).c_str(),
                seconds_text(change.after.seconds).c_str(), (change.ratio() - 1) * 100,
                change.uncertainty() * 100);
}

std::string changes_text(const char* title, const std::vector<PerfChange>& changes) {
  if (changes.empty()) return "";
  std::string text = std::string(title) + " " + std::to_string(changes.size()) + "\n";
  for (size_t i = 0; i < std::min(changes.size(), kShownChanges); ++i) {
    text += change_text(changes[i]);
  }
  if (changes.size() > kShownChanges) {
    text += "  ... and " + std::to_string(changes.size() - kShownChanges) + " more in perf.json\n";
  }
  return text;
}

std::string comparison_text(const Comparison& comparison) {
  if (comparison.path.empty()) return "";
  std::string text = "\nbaseline " + comparison.path + ": ";
  if (comparison.compared == 0) {
    text += "nothing could be compared\n";
  } else {
    text +=
        format("%zu compared, beyond %g %% and the uncertainty of both, %.1f %% at the median\n",
               comparison.compared, comparison.max_regress * 100, comparison.uncertainty * 100);
  }
  for (const std::string& warning : comparison.warnings) text += "  warning: " + warning + "\n";
  text += changes_text("slower", comparison.regressions);
  text += changes_text("faster", comparison.improvements);
  if (!comparison.unclear.empty()) {
    text += format("  %zu were too noisy to compare, then or now\n", comparison.unclear.size());
  }
  for (const std::string& id : comparison.missing) {
    text += "  " + padded(id, kIdWidth) + " was measured then, and is not now\n";
  }
  if (!comparison.fresh.empty()) {
    text += "  " + std::to_string(comparison.fresh.size()) + " that the baseline does not have\n";
  }
  return text;
}

nlohmann::json line_json(const PerfLine& line) {
  nlohmann::json entry = {{"id", line.id}, {"status", outcome_name(line.result.outcome)}};
  if (!line.dtype.empty()) entry["dtype"] = line.dtype;
  if (!line.result.message.empty()) entry["message"] = line.result.message;
  if (!line.result.cause.empty()) entry["cause"] = line.result.cause;
  for (const auto& [name, value] : line.result.metrics) entry[name] = value;
  for (const auto& [name, value] : line.result.details) entry[name] = value;
  if (!line.is_measured()) return entry;
  entry["bytes_per_s"] = line.bytes_per_s();
  if (line.flops > 0) entry["flops_per_s"] = line.flops_per_s();
  const Uncertainty& parts = line.uncertainty;
  entry["uncertainty"] = parts.total();  // JSON shows an infinite uncertainty as null.
  if (!line.has_roof()) return entry;
  entry["uncertainty_of"] = {{"scatter", parts.scatter},
                             {"drift", parts.drift},
                             {"ceilings", parts.ceilings},
                             {"runs", parts.runs}};
  entry["roof_s"] = line.roof_s;
  entry["slowdown"] = line.slowdown;
  entry["bound"] = line.is_flops_bound ? "flops" : "memory";
  entry["fraction"] = line.fraction;
  entry["grade"] = line.is_graded() || line.is_between() ? line.grade_text() : "none";
  if (line.is_too_noisy()) return entry;
  entry["fraction_least"] = line.least();
  entry["fraction_most"] = line.most();
  return entry;
}

nlohmann::json changes_json(const std::vector<PerfChange>& changes) {
  nlohmann::json list = nlohmann::json::array();
  for (const PerfChange& change : changes) {
    list.push_back({{"id", change.id},
                    {"before_s", change.before.seconds},
                    {"after_s", change.after.seconds},
                    {"ratio", change.ratio()},
                    {"uncertainty", change.uncertainty()}});
  }
  return list;
}

}  // namespace

std::string perf_head(const PerfHeader& header, const nlohmann::json& hello) {
  const nlohmann::json &plugin = hello.at("plugin"), &target = target_of(hello);
  std::string text =
      format("bp-conformance perf (suite %s)   seed 0x%llx   sets rotate through 2 x %s (%s)\n",
             kSuiteVersion, static_cast<unsigned long long>(header.seed),
             size_text(header.options.cache_bytes).c_str(), header.cache_source.c_str());
  text += "plugin  " + plugin.value("name", "") + " " + plugin.value("version", "") + "   abi " +
          plugin.value("abi", "") + "   sha256 " + hello.value("sha256", "").substr(0, 12) + "   " +
          plugin.value("path", "") + "\n";
  text += "device  " + target.value("name", "") + ": " + target.value("device", "") + "\n";
  for (const std::string& line : header.environment) text += "env     " + line + "\n";
  return text + "\n";
}

std::string ceilings_text(const Ceilings& ceilings) {
  const auto rate = [](double value) { return value == 0 ? "-" : rate_text(value); };
  std::string text = "ceilings  copy " + rate(ceilings.copy_bytes_per_s) + "  read " +
                     rate(ceilings.read_bytes_per_s) + "  write " +
                     rate(ceilings.write_bytes_per_s) + "  update " +
                     rate(ceilings.update_bytes_per_s) + " GB/s   launch ";
  text += ceilings.launch_s == 0 ? "-"
                                 : seconds_text(ceilings.launch_s) + ", in batches " +
                                       seconds_text(ceilings.batched_launch_s);
  text += "\n          matmul";
  if (ceilings.flops_per_s.empty()) text += " -";
  for (const auto& [dtype, flops] : ceilings.flops_per_s) {
    text += "  " + dtype + " " + rate_text(flops);
  }
  return text + " GFLOP/s\n\n";
}

std::string columns_text() {
  return padded("case", kIdWidth) + format(" %9s %7s %8s %8s %9s %-6s %6s %8s  %s\n", "median",
                                           "+-", "GB/s", "GFLOP/s", "roof", "bound", "of it",
                                           "range %", "grade");
}

std::string line_text(const PerfLine& line, bool has_color) {
  if (line.is_ceiling || !line.is_measured()) return status_line(line, has_color);
  std::string text =
      padded(line.id, kIdWidth) +
      format(" %9s %7s %8s %8s", seconds_text(line.seconds.median).c_str(),
             share_text(line.uncertainty.total()).c_str(), rate_text(line.bytes_per_s()).c_str(),
             line.flops > 0 ? rate_text(line.flops_per_s()).c_str() : "");
  if (!line.has_roof()) return text + "   no roof\n";
  text += format(" %9s %-6s %4.0f %% %8s  ", seconds_text(line.roof_s).c_str(),
                 line.is_flops_bound ? "flops" : "memory", line.fraction * 100,
                 range_text(line).c_str());
  const bool is_slow = line.is_graded() && line.best_grade == 'F';
  text += painted(line.grade_text() + (is_slow ? " SLOW" : ""), color_of(line), has_color);
  return text + (!line.is_too_noisy() && line.least() > kTooFast ? " above the roof" : "") + "\n";
}

std::string stability_text(const Stability& stability) {
  std::string text =
      format("\n%zu runs; rows that two of them graded differently:\n", stability.runs);
  for (const RowRuns& row : stability.rows) {
    if (!row.has_changed) continue;
    const auto [least, most] = std::ranges::minmax(row.fractions);
    text += "  " + padded(row.id, kIdWidth);
    for (size_t i = 0; i < row.grades.size(); ++i) text += (i == 0 ? " " : ", ") + row.grades[i];
    text += format("   %.0f to %.0f %% of the roof\n", least * 100, most * 100);
  }
  text += format("%zu of %zu rows changed their grade; %.0f %% of the lines of all runs have one\n",
                 stability.changed, stability.rows.size(), stability.graded * 100);
  return text + format(
                    "between the best and the worst run of a row lie %.1f %% at the median, "
                    "%.1f %% at most\n",
                    stability.range * 100, stability.most_range * 100);
}

std::string summary_text(const PerfSummary& summary, const Comparison& comparison,
                         const std::string& verdict) {
  std::string text = "\n";
  if (summary.has_roofs()) {
    text += "grades ";
    for (const char grade : {'A', 'B', 'C', 'D', 'F'}) {
      const auto found = summary.grades.find(grade);
      text += format("  %c %zu", grade, found == summary.grades.end() ? size_t{0} : found->second);
    }
    text += format("   between two %zu   not graded %zu", summary.between, summary.ungraded);
    if (summary.mean_fraction > 0) {
      text += format("   geometric mean of the graded %.0f %% of the roof",
                     summary.mean_fraction * 100);
    }
    text += "\n";
    const std::vector<const PerfLine*> slow = slowest(summary, kSlowest);
    if (!slow.empty()) text += "slowest";
    for (const PerfLine* line : slow) {
      text += format("  %s %.0f %%", line->id.substr(5).c_str(), line->fraction * 100);
    }
    if (!slow.empty()) text += "\n";
    const MachineNoise& machine = summary.machine;
    text += format(
        "machine  %.2f times slower beside the calls than beside the ceilings, %.2f at most; "
        "uncertainty %s at the median, busy beside %zu calls\n",
        machine.slowdown, machine.most_slowdown, share_text(machine.uncertainty).c_str(),
        machine.busy);
  }
  for (const std::string& finding : summary.findings) text += "finding: " + finding + "\n";
  text += comparison_text(comparison);
  return text + "verdict: " + verdict + "\n" +
         format("%zu measured, %zu failed, %zu skipped\n", summary.measured, summary.failed,
                summary.skipped);
}

nlohmann::json perf_document(const PerfHeader& header, const nlohmann::json& hello) {
  const nlohmann::json &plugin = hello.at("plugin"), &target = target_of(hello);
  nlohmann::json options = nlohmann::json::object();
  for (const auto& [key, value] : header.backend_options) options[key] = value;
  return {
      {"schema", "backplane-perf-2"},
      {"suite", kSuiteVersion},
      {"plugin",
       {{"name", plugin.value("name", "")},
        {"version", plugin.value("version", "")},
        {"abi", plugin.value("abi", "")},
        {"path", plugin.value("path", "")},
        {"sha256", hello.value("sha256", "")}}},
      {"device", {{"name", target.value("name", "")}, {"description", target.value("device", "")}}},
      {"settings",
       {{"seed", header.seed},
        {"cache_bytes", header.options.cache_bytes},
        {"cache_source", header.cache_source},
        {"min_seconds", header.options.min_seconds},
        {"options", std::move(options)}}}};
}

void add_results(const PerfSummary& summary, nlohmann::json& document) {
  const Ceilings& ceilings = summary.ceilings;
  document["ceilings"] = {{"copy_bytes_per_s", ceilings.copy_bytes_per_s},
                          {"read_bytes_per_s", ceilings.read_bytes_per_s},
                          {"write_bytes_per_s", ceilings.write_bytes_per_s},
                          {"update_bytes_per_s", ceilings.update_bytes_per_s},
                          {"launch_s", ceilings.launch_s},
                          {"batched_launch_s", ceilings.batched_launch_s},
                          {"flops_per_s", ceilings.flops_per_s},
                          {"uncertainty", ceilings.uncertainty}};
  nlohmann::json cases = nlohmann::json::array();
  for (const PerfLine& line : summary.lines) cases.push_back(line_json(line));
  document["cases"] = std::move(cases);
  nlohmann::json grades = nlohmann::json::object();
  for (const auto& [grade, count] : summary.grades) grades[std::string(1, grade)] = count;
  document["summary"] = {{"measured", summary.measured},
                         {"failed", summary.failed},
                         {"skipped", summary.skipped},
                         {"grades", std::move(grades)},
                         {"between", summary.between},
                         {"ungraded", summary.ungraded},
                         {"mean_fraction", summary.mean_fraction},
                         {"slowdown", summary.machine.slowdown},
                         {"most_slowdown", summary.machine.most_slowdown},
                         {"uncertainty", summary.machine.uncertainty},
                         {"busy", summary.machine.busy},
                         {"is_noisy", summary.machine.is_noisy()},
                         {"findings", summary.findings}};
}

void add_stability(const Stability& stability, nlohmann::json& document) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RowRuns& row : stability.rows) {
    rows.push_back({{"id", row.id},
                    {"grades", row.grades},
                    {"changed", row.has_changed},
                    {"fractions", row.fractions}});
  }
  document["stability"] = {{"runs", stability.runs},     {"changed", stability.changed},
                           {"graded", stability.graded}, {"range", stability.range},
                           {"rows", std::move(rows)},    {"most_range", stability.most_range}};
}

void add_comparison(const Comparison& comparison, nlohmann::json& document) {
  if (comparison.path.empty()) return;
  document["comparison"] = {{"baseline", comparison.path},
                            {"max_regress", comparison.max_regress},
                            {"compared", comparison.compared},
                            {"uncertainty", comparison.uncertainty},
                            {"unclear", comparison.unclear},
                            {"regressions", changes_json(comparison.regressions)},
                            {"improvements", changes_json(comparison.improvements)},
                            {"missing", comparison.missing},
                            {"fresh", comparison.fresh},
                            {"warnings", comparison.warnings}};
}

PerfVerdict perf_verdict(const PerfSummary& summary, const Comparison& comparison,
                         bool is_interrupted) {
  if (is_interrupted) return {"INTERRUPTED: the results so far are valid", kExitInterrupted};
  const bool has_harness_error = std::ranges::any_of(summary.lines, [](const PerfLine& line) {
    return line.result.outcome == Outcome::kHarnessError;
  });
  if (summary.failed > 0) {
    return {"WRONG: " + std::to_string(summary.failed) + " failed; their times count for nothing",
            has_harness_error ? kExitHarness : kExitFailures};
  }
  if (summary.measured == 0) {
    return {"NOTHING MEASURED: no kernel of the backend takes one of these calls", kExitNothingRan};
  }
  const auto found = summary.grades.find('F');
  const size_t slow = found == summary.grades.end() ? 0 : found->second;
  const std::string grades = slow == 0 ? "" : ", " + std::to_string(slow) + " SLOW";
  if (!comparison.regressions.empty()) {
    return {"REGRESSED: every result is right, " + std::to_string(comparison.regressions.size()) +
                " slower than the baseline" + grades,
            kExitTooSlow};
  }
  return {"RIGHT" + grades, kExitOk};
}

}  // namespace bp::conformance
