// Compares a run with the perf.json of an earlier run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/perf/grades.hpp"

namespace bp::conformance {

// The median time of a call, and the uncertainty of that time as a share of it.
struct PerfTime {
  double seconds = 0;
  double uncertainty = 0;
};

struct PerfChange {
  std::string id;
  PerfTime before, after;

  double ratio() const { return after.seconds / before.seconds; }
  // Returns by how much the two runs may differ without a reason: a difference of logarithms, at
  // three sigmas.
  double uncertainty() const;
};

struct Comparison {
  std::string path;  // Path of the baseline; "" if there is none.
  double max_regress = 0.05;
  std::vector<PerfChange> regressions, improvements;
  std::vector<std::string> missing;  // Calls that the baseline has and that were selected but not
                                     // measured now.
  std::vector<std::string> fresh;    // Calls that were measured now and that the baseline lacks.
  std::vector<std::string> unclear;  // Calls that were too noisy in one of the runs and are not
                                     // compared.
  size_t compared = 0;
  double uncertainty = 0;             // The median uncertainty of the changes, over all compared
                                      // calls.
  std::vector<std::string> warnings;  // Other differences between the runs.
};

// The part of a baseline that a comparison reads. Its checks refuse comparisons that mean nothing.
class Baseline {
 public:
  // Reads the file `path`, or perf.json in the folder `path`. Throws UsageError if that fails.
  static Baseline read(const std::string& path);

  // Reads a baseline from `text`, the contents of the file `path`. Throws as read() does.
  static Baseline parse(const std::string& text, const std::string& path);

  // Throws UsageError if `now`, the document of this run, is of another device, backend or suite
  // than the baseline, or was measured in another way.
  void require_comparable(const nlohmann::json& now) const;

  Comparison compare(const PerfSummary& summary, const nlohmann::json& now,
                     double max_regress) const;

 private:
  std::string path_;
  nlohmann::json document_;
};

}  // namespace bp::conformance
