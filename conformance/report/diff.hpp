// What changed between two runs.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/stored.hpp"

namespace bp::conformance {

struct Change {
  std::string id;
  std::string text;  // "Pass -> Fail: out[3] is 7, not 8".
};

struct RunDiff {
  std::vector<Change> new_failures;  // Also of cases that only the second run has.
  std::vector<Change> fixed;
  std::vector<Change> changed;       // Another status, and neither of these.
  std::vector<Change> drifted;       // Right in both, and the margin grew fourfold.
  std::vector<Change> added;         // Only the second run has them, and they do not fail.
  std::vector<Change> vanished;      // Only the first run has them.
  std::vector<std::string> context;  // What differs between what was run: plugin, seed, tier.
  size_t same_count = 0;

  bool is_empty() const;
};

RunDiff diff_runs(const StoredRun& before, const StoredRun& after);

// At most `limit` changes of each kind; 0: all.
std::string diff_text(const RunDiff& diff, const StoredRun& before, const StoredRun& after,
                      size_t limit);

}  // namespace bp::conformance
