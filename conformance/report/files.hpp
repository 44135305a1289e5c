// The files of a run. results.jsonl grows during the run, and the others come from its summary.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "conformance/report/stored.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

// A file or standard output could not be written: exit code 4.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Locks a folder, so that only this process writes to it until the object ends.
class FolderLock {
 public:
  // Throws UsageError if `folder` is no folder, or if another process holds it; the message names
  // that process. `flag` is the option as the user wrote it, for the message.
  FolderLock(const std::string& folder, const std::string& flag);
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~FolderLock();

 private:
  int fd_ = -1;
};

struct ResultFolder {
  std::string path;
  FolderLock lock;
};

// Makes `folder`, or "bp-results/<time>" if it is "", and removes the files of an earlier run.
// Throws UsageError, also while another run writes to the folder.
ResultFolder make_result_folder(const std::string& folder);

// Checks that `folder` holds a run of the same plugin, seed and selection, and removes an
// incomplete last line. Throws UsageError.
void continue_result_folder(const std::string& folder, const StoredRun& stored,
                            const RunHeader& header, const nlohmann::json& hello);

// Writes info.json before the first case runs, so that a run that is killed can still be
// identified.
void write_info(const RunHeader& header, const nlohmann::json& hello);

// Writes results.jsonl: a line for each attempt. A line is on the disk after a second at most, and
// at once after a death. All functions throw OutputError.
class ResultLog {
 public:
  ResultLog(const std::string& path, uint64_t seed, const CaseList& cases);
  ~ResultLog();
  ResultLog(const ResultLog&) = delete;

  void add(const Attempt& attempt);

  // Adds lines for the cases whose final result differs from that of their last attempt.
  void add_finals(const Summary& summary);

  // Syncs all lines to the disk.
  void finish();

 private:
  void write(const nlohmann::json& line, bool at_once);
  void sync();

  std::string path_;
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

// Writes a file to the disk atomically: after a failure the old file is unchanged. Throws
// OutputError.
void write_file(const std::string& path, const std::string& text);

// Writes files one by one: if one of them fails, the others are still written.
class Outputs {
 public:
  // Calls `write`, which may throw OutputError or UsageError.
  void attempt(const std::function<void()>& write);

  // Returns which files could not be written, and why; "" if all were written.
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

// Writes summary.json, junit.xml, report.html, report.md and a folder under repro/ for each
// failure.
void write_result_files(const RunHeader& header, const RunReport& report, const Summary& summary,
                        Outputs& outputs);

// Returns the name of a case's file or folder. It is the id, unless the id is long or has
// characters other than a-z A-Z 0-9 . _ -: then it is the beginning of the id and a hash,
// "op.add.f32~1f0c...". No two ids have the same name.
std::string file_name_of(const std::string& id);

}  // namespace bp::conformance
