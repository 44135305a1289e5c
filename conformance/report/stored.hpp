// What an earlier run left in its folder: its cases with their results, and what it was asked for.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct StoredCase {
  std::string id;
  Attempt attempt;          // The last one, without the index.
  Result result;            // What it came to: under the waivers, and after confirmation.
  int attempt_count = 0;    // Lines of attempts.
  bool has_agreed = false;  // The last two attempts ended alike.
  std::vector<std::string> tags;
};

class StoredRun {
 public:
  // Throws UsageError where `folder` holds no results, or they cannot be read. A last line that is
  // cut, as a run that was killed leaves it, does not count.
  static StoredRun read(const std::string& folder);

  // The same of the texts of results.jsonl, info.json and summary.json; "" is a file that is not
  // there. `folder` is for errors.
  static StoredRun parse(const std::string& folder, const std::string& results,
                         const std::string& info, const std::string& summary);

  const std::string& folder() const { return folder_; }
  const std::vector<StoredCase>& cases() const { return cases_; }

  // NULL if it has none of this id.
  const StoredCase* find(std::string_view id) const;

  // NULL where the run was killed before it could write them.
  const nlohmann::json& info() const { return info_; }
  const nlohmann::json& summary() const { return summary_; }

  // The bytes of results.jsonl up to the end of its last whole line.
  uint64_t whole_bytes() const { return whole_bytes_; }

 private:
  void take_line(const nlohmann::json& line, const std::string& name);

  std::string folder_;
  std::vector<StoredCase> cases_;
  std::unordered_map<std::string, size_t> index_;
  nlohmann::json info_, summary_;
  uint64_t whole_bytes_ = 0;
};

// A stored run as if it had just ended, for the reports.
struct RestoredRun {
  CaseList cases;
  RunHeader header;
  RunReport report;
  Summary summary;
};
RestoredRun restore(const StoredRun& run);

// What a run was asked for, as info.json holds it under "run"; and back.
nlohmann::json to_json(const RunHeader& header);
// Throws UsageError, which calls the document `name`.
RunHeader run_header_from_json(const nlohmann::json& json, const std::string& name);

}  // namespace bp::conformance
