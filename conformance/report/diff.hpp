// Compares two runs, and lists what changed.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/stored.hpp"

namespace bp::conformance {

struct Change {
  std::string id;
  std::string text;  // The change in words: "Pass -> Fail: out[3] is 7, not 8".
  std::string kind;  // What changes of one kind have in common: "Pass -> Fail (tail)".
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

// Writes how many changes there are of each kind, in which ops, and one of them. If `lists_all`, it
// writes every change.
std::string diff_text(const RunDiff& diff, const StoredRun& before, const StoredRun& after,
                      bool lists_all);

}  // namespace bp::conformance
