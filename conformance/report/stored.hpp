// An earlier run, read from its folder: its cases with their results, and its settings.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct StoredCase {
  std::string id;
  Attempt attempt;          // The last attempt, without its index.
  Result result;            // The final result, after waivers and confirmation.
  int attempt_count = 0;    // The number of lines that are attempts.
  bool has_agreed = false;  // The last two attempts ended alike.
  std::vector<std::string> tags;
};

class StoredRun {
 public:
  // Throws UsageError if `folder` holds no results, or if they cannot be read. A last line that is
  // incomplete, as after a kill, does not count.
  static StoredRun read(const std::string& folder);

  // Makes a run from the texts of results.jsonl, info.json and summary.json; "" means that the file
  // does not exist. `folder` is for error messages.
  static StoredRun parse(const std::string& folder, const std::string& results,
                         const std::string& info, const std::string& summary);

  const std::string& folder() const { return folder_; }
  const std::vector<StoredCase>& cases() const { return cases_; }

  // Returns NULL if there is no case with this id.
  const StoredCase* find(std::string_view id) const;

  // Return null if the run was killed before it could write the file.
  const nlohmann::json& info() const { return info_; }
  const nlohmann::json& summary() const { return summary_; }

  // Returns the bytes of results.jsonl up to the end of its last complete line.
  uint64_t whole_bytes() const { return whole_bytes_; }

 private:
  void take_line(const nlohmann::json& line, const std::string& name);

  std::string folder_;
  std::vector<StoredCase> cases_;
  std::unordered_map<std::string, size_t> index_;
  nlohmann::json info_, summary_;
  uint64_t whole_bytes_ = 0;
};

// A stored run in the form of a run that has just ended, for the reports.
struct RestoredRun {
  CaseList cases;
  RunHeader header;
  RunReport report;
  Summary summary;
};
RestoredRun restore(const StoredRun& run);

// Writes the settings of a run, which info.json holds under "run".
nlohmann::json to_json(const RunHeader& header);
// Reads the settings back. Throws UsageError, which calls the document `name`.
RunHeader run_header_from_json(const nlohmann::json& json, const std::string& name);

}  // namespace bp::conformance
