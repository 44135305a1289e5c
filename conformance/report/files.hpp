// The files of a run: results.jsonl while it goes on, and the others from its summary.
#pragma once

#include <chrono>
#include <string>

#include "conformance/report/stored.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

// Makes `folder`, or "bp-results/<time>" where it is "", and removes what an earlier run left in
// it. Throws UsageError.
std::string make_result_folder(std::string folder);

// Checks that `folder` holds a run of the same plugin, seed and selection, and cuts a last line
// that is not whole. Throws UsageError.
void continue_result_folder(const std::string& folder, const StoredRun& stored,
                            const RunHeader& header, const nlohmann::json& hello);

// info.json, before the first case runs: a run that is killed can still be told from others.
void write_info(const RunHeader& header, const nlohmann::json& hello);

// The record of truth: a line for each attempt, on the disk after a second at most, and at once
// after a death.
class ResultLog {
 public:
  // An empty path writes nothing.
  ResultLog(const std::string& path, uint64_t seed, const CaseList& cases);
  ~ResultLog();
  ResultLog(const ResultLog&) = delete;

  void add(const Attempt& attempt);

  // Lines for the cases whose final result is not that of their last attempt.
  void add_finals(const Summary& summary);

 private:
  void write(const nlohmann::json& line, bool at_once);

  int fd_ = -1;
  uint64_t seed_;
  const CaseList& cases_;
  std::chrono::steady_clock::time_point synced_;
};

nlohmann::json attempt_json(const CaseList& cases, const Attempt& attempt, uint64_t seed);
nlohmann::json summary_json(const RunHeader& header, const RunReport& report,
                            const Summary& summary);
std::string junit_xml(const RunReport& report, const Summary& summary);
std::string tap_text(const Summary& summary);

// Throws UsageError if it cannot be written.
void write_file(const std::string& path, const std::string& text);

// summary.json, junit.xml, report.html, report.md and a folder under repro/ for each failure.
void write_result_files(const RunHeader& header, const RunReport& report, const Summary& summary);

}  // namespace bp::conformance
