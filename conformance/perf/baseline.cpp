#include "conformance/perf/baseline.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "conformance/json_file.hpp"
#include "conformance/runner/setup.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr double kSurely = 1.5;  // A change of more than this many combined uncertainties is sure.

struct Condition {
  const char* pointer;  // The place of the condition in the document.
  const char* what;
};

// Figures that were taken under different conditions of this list cannot be compared.
constexpr Condition kEqual[] = {
    {"/schema", "schema"},
    {"/suite", "suite version"},
    {"/plugin/name", "backend"},
    {"/device/name", "device"},
    {"/device/description", "device"},
    {"/settings/cache_bytes", "--cache-bytes"},
};

// These conditions may differ, because a comparison may ask for their effect. The report names each
// difference.
constexpr Condition kSaid[] = {
    {"/plugin/version", "version of the backend"},
    {"/settings/options", "options of the backend"},
    {"/settings/min_seconds", "--min-time"},
    {"/settings/seed", "seed"},
};

// Returns the time of one entry of `cases`. The document has no uncertainty for a time that was too
// noisy to have one.
PerfTime time_of(const JsonObject& entry) {
  const bool is_known = entry.has("uncertainty") && !entry.member("uncertainty").is_null();
  return {entry.number("median_s", 0, kMostSeconds),
          is_known ? entry.number("uncertainty", 0, HUGE_VAL) : HUGE_VAL};
}

std::map<std::string, PerfTime> times_of(const json& cases, const std::string& path) {
  std::map<std::string, PerfTime> times;
  for (size_t i = 0; i < cases.size(); ++i) {
    const JsonObject entry(cases[i], path + ": cases[" + std::to_string(i) + "]");
    const std::string id = entry.text("id");
    if (!entry.has("median_s") || entry.member("median_s").is_null()) continue;
    if (!times.emplace(id, time_of(entry)).second) {
      entry.refuse("id", "\"" + id + "\", as in an entry before", "an id of its own");
    }
  }
  return times;
}

// Throws UsageError unless `document` was written by perf and has all that a comparison reads.
void check_document(const JsonObject& document) {
  if (!document.has("schema") || !document.has("cases")) {
    throw UsageError(document.name() + ": was not written by perf: it has no " +
                     (document.has("schema") ? "cases" : "schema"));
  }
  static_cast<void>(times_of(document.list("cases"), document.name()));
}

bool is_clear(const PerfTime& time) { return time.uncertainty <= kMostUncertain; }

std::string text_at(const json& document, const char* pointer) {
  const json::json_pointer at(pointer);
  if (!document.contains(at)) return "none";
  const json& value = document.at(at);
  return clean_text(value.is_string() ? value.get<std::string>() : json_text(value),
                    LineBreaks::kEscape, 200);
}

// Warns of each ceiling that changed by more than a tenth, with both values.
void warn_of_ceilings(const json& before, const json& now, std::vector<std::string>& warnings) {
  for (const char* name : {"copy", "read", "write", "update"}) {
    const json::json_pointer at(std::string("/ceilings/") + name + "_bytes_per_s");
    if (!before.contains(at) || !now.contains(at)) continue;
    if (!before.at(at).is_number() || !now.at(at).is_number()) continue;
    const double then = before.at(at).get<double>(), current = now.at(at).get<double>();
    if (then <= 0 || std::fabs(current / then - 1) <= 0.1) continue;
    warnings.push_back(std::string("the ceiling ") + name + " was " + fixed_text(then / 1e9, 1) +
                       " GB/s then and is " + fixed_text(current / 1e9, 1) +
                       " GB/s now: the machine itself was faster or busier");
  }
}

}  // namespace

double PerfChange::uncertainty() const {
  return kSurely * std::hypot(before.uncertainty, after.uncertainty);
}

Baseline Baseline::read(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string file = is_folder ? (std::filesystem::path(path) / "perf.json").string() : path;
  return parse(read_regular_file(file), file);
}

Baseline Baseline::parse(const std::string& text, const std::string& path) {
  Baseline baseline;
  baseline.path_ = path;
  baseline.document_ = parse_json(text, path);
  check_document(JsonObject(baseline.document_, path));
  return baseline;
}

void Baseline::require_comparable(const json& now) const {
  for (const Condition& condition : kEqual) {
    const std::string then = text_at(document_, condition.pointer);
    const std::string current = text_at(now, condition.pointer);
    if (then == current) continue;
    throw UsageError("--baseline " + path_ + ": its " + condition.what + " is " + then +
                     ", and that of this run " + current + "; such figures do not compare");
  }
}

Comparison Baseline::compare(const PerfSummary& summary, const json& now,
                             double max_regress) const {
  Comparison comparison;
  comparison.path = path_;
  comparison.max_regress = max_regress;
  for (const Condition& condition : kSaid) {
    const std::string then = text_at(document_, condition.pointer);
    const std::string current = text_at(now, condition.pointer);
    if (then == current) continue;
    comparison.warnings.push_back(std::string("another ") + condition.what + ": " + then +
                                  " then, " + current + " now");
  }
  warn_of_ceilings(document_, now, comparison.warnings);
  const std::map<std::string, PerfTime> before = times_of(document_.at("cases"), path_);
  std::vector<double> uncertainties;
  for (const PerfLine& line : summary.lines) {
    if (line.is_ceiling) continue;
    const auto found = before.find(line.id);
    if (found == before.end()) {
      if (line.is_measured()) comparison.fresh.push_back(line.id);
      continue;
    }
    if (!line.is_measured()) {
      comparison.missing.push_back(line.id);
      continue;
    }
    const PerfChange change{
        line.id, found->second, {line.seconds.median, line.uncertainty.total()}};
    if (!is_clear(change.before) || !is_clear(change.after)) {
      comparison.unclear.push_back(line.id);
      continue;
    }
    ++comparison.compared;
    uncertainties.push_back(change.uncertainty());
    if (std::fabs(std::log(change.ratio())) <= change.uncertainty()) continue;
    if (change.ratio() > 1 + max_regress) comparison.regressions.push_back(change);
    if (change.ratio() < 1 / (1 + max_regress)) comparison.improvements.push_back(change);
  }
  comparison.uncertainty = spread_of(std::move(uncertainties)).median;
  std::ranges::sort(comparison.regressions, std::greater<>(), &PerfChange::ratio);
  std::ranges::sort(comparison.improvements, std::less<>(), &PerfChange::ratio);
  return comparison;
}

}  // namespace bp::conformance
