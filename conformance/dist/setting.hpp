// One table with one number of ranks, as the supervisor judges it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "conformance/dist/supervisor.hpp"

namespace bp::conformance::dist {

struct Setting {
  const Options& options;
  const Observer& observer;
  Report& report;
  std::string table;
  uint32_t ranks = 1;
  size_t device_count = 1;
  const char* section = "";  // Of the report.

  void add(const std::string& group, const std::string& name, Outcome outcome,
           const std::string& text = "", std::vector<std::string> notes = {}) const;
  void show(const std::string& what, size_t done, size_t total) const;

  // Returns a task for each rank.
  std::vector<RankTask> tasks(Job job, const std::string& folder) const;
};

// Return false if no group of these ranks can be made.
bool run_values(const Setting& setting);
bool run_bandwidth(const Setting& setting);
void run_faults(const Setting& setting);

// Returns how long a rank may say nothing.
double silence_seconds(double timeout_seconds, double grace_seconds);

// A new folder for the store of one group of processes, which ends with this object.
class StoreFolder {
 public:
  StoreFolder();
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What create() returned on each rank.
class Creation {
 public:
  explicit Creation(uint32_t ranks) : statuses_(ranks), texts_(ranks), is_told_(ranks) {}

  void take(uint32_t rank, const nlohmann::json& line);
  // Returns whether some rank has no group.
  bool has_failed() const;
  // Adds the result of a create() that failed: a skip if the table does not make such groups.
  void judge(const Setting& setting) const;

 private:
  std::vector<bp_status> statuses_;
  std::vector<std::string> texts_;
  std::vector<bool> is_told_;
};

// Finds files in /dev/shm that ranks used and that are still there when all of them have ended.
class SharedMemory {
 public:
  SharedMemory();
  void take(const nlohmann::json& line);
  std::vector<std::string> left() const;

 private:
  std::set<std::string> before_, used_;
};

}  // namespace bp::conformance::dist
