// Compares two runs, and lists what changed.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/stored.hpp"

namespace bp::conformance {

struct Change {
  std::string id;
  std::string text;  // The change in words: "Pass -> Fail: out[3] is 7, not 8".
};

struct RunDiff {
  std::vector<Change> new_failures;  // New failures, including failures of cases that only the
                                     // second run has.
  std::vector<Change> fixed;
  std::vector<Change> changed;       // Other changes of the status.
  std::vector<Change> drifted;       // Cases that are right in both runs, and whose margin grew
                                     // fourfold.
  std::vector<Change> added;         // Cases that only the second run has, and that do not fail.
  std::vector<Change> vanished;      // Cases that only the first run has.
  std::vector<std::string> context;  // Differences between what the runs were given: plugin, seed,
                                     // tier.
  size_t same_count = 0;

  bool is_empty() const;
};

RunDiff diff_runs(const StoredRun& before, const StoredRun& after);

// Writes at most `limit` changes of each kind; 0 means all.
std::string diff_text(const RunDiff& diff, const StoredRun& before, const StoredRun& after,
                      size_t limit);

}  // namespace bp::conformance
