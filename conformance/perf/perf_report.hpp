// The output of `perf`: a line for each call, the summary, and perf.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "conformance/perf/baseline.hpp"
#include "conformance/perf/grades.hpp"
#include "conformance/perf/stability.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// The settings of a run.
struct PerfHeader {
  std::string plugin;  // The plugin as the user named it.
  uint64_t seed = 0;
  PerfOptions options;
  std::string cache_source;  // The source of options.cache_bytes: "--cache-bytes", a file, ...
  std::vector<std::pair<std::string, std::string>> backend_options;
  std::vector<std::string> environment;
  bool has_color = false;
};

// ---- Text ------------------------------------------------------------------------------------ //

std::string perf_head(const PerfHeader& header, const nlohmann::json& hello);
// Returns the ceilings and the titles of the columns below them. A ceiling that failed or is not
// supported has a line of its own.
std::string ceilings_text(const Ceilings& ceilings);
std::string columns_text();
// Returns the line of one call, with its line break.
std::string line_text(const PerfLine& line, bool has_color);
// Returns, for more than one run, the rows that have two grades, and their number.
std::string stability_text(const Stability& stability);
std::string summary_text(const PerfSummary& summary, const Comparison& comparison,
                         const std::string& verdict);

// ---- Data ------------------------------------------------------------------------------------ //

// Returns perf.json without results: the part that a baseline must agree with.
nlohmann::json perf_document(const PerfHeader& header, const nlohmann::json& hello);
void add_results(const PerfSummary& summary, nlohmann::json& document);
void add_stability(const Stability& stability, nlohmann::json& document);
void add_comparison(const Comparison& comparison, nlohmann::json& document);

// ---- Verdict --------------------------------------------------------------------------------- //

struct PerfVerdict {
  std::string text;
  ExitCode exit_code = kExitOk;
};
PerfVerdict perf_verdict(const PerfSummary& summary, const Comparison& comparison,
                         bool is_interrupted);

}  // namespace bp::conformance
