// The files of a run: results.jsonl while it goes on, and the others from its summary.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "conformance/report/stored.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

// What the suite was to write could not be written: exit code 4.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A folder that this process alone writes to, until the object ends.
class FolderLock {
 public:
  // Throws UsageError where `folder` is none, or where another process holds it, which it names.
  // `flag` is what the user wrote, for the message.
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

// Makes `folder`, or "bp-results/<time>" where it is "", and removes what an earlier run left in
// it. Throws UsageError, also while another run writes to it.
ResultFolder make_result_folder(const std::string& folder);

// Checks that `folder` holds a run of the same plugin, seed and selection, and cuts a last line
// that is not whole. Throws UsageError.
void continue_result_folder(const std::string& folder, const StoredRun& stored,
                            const RunHeader& header, const nlohmann::json& hello);

// info.json, before the first case runs: a run that is killed can still be told from others.
void write_info(const RunHeader& header, const nlohmann::json& hello);

// The record of truth: a line for each attempt, on the disk after a second at most, and at once
// after a death. All of its functions throw OutputError.
class ResultLog {
 public:
  ResultLog(const std::string& path, uint64_t seed, const CaseList& cases);
  ~ResultLog();
  ResultLog(const ResultLog&) = delete;

  void add(const Attempt& attempt);

  // Lines for the cases whose final result is not that of their last attempt.
  void add_finals(const Summary& summary);

  // Brings all lines to the disk.
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

// The file is there as a whole, on the disk, or it is as it was. Throws OutputError.
void write_file(const std::string& path, const std::string& text);

// Files that are written one by one: one that cannot be written does not keep the others from it.
class Outputs {
 public:
  // Runs `write`, which may throw OutputError or UsageError.
  void attempt(const std::function<void()>& write);

  // What could not be written, and why; "" if all was.
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

// summary.json, junit.xml, report.html, report.md and a folder under repro/ for each failure.
void write_result_files(const RunHeader& header, const RunReport& report, const Summary& summary,
                        Outputs& outputs);

// What a file or a folder of a case is called: the id, or, of an id that is long or has characters
// that are none of a-z A-Z 0-9 . _ -, its beginning and a hash, "op.add.f32~1f0c...". No two ids
// have the same name.
std::string file_name_of(const std::string& id);

}  // namespace bp::conformance
