// Comparison with the perf.json of an earlier run.
//
// A call is a regression if its median is higher by more than --max-regress and by more than one
// and a half times the uncertainty of both runs together, and an improvement if it is lower by as
// much: among a hundred calls, a chance of one in 20 for each would always find some. Where one of
// the runs was too noisy for a grade, nothing is said of a call but that.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/perf/grades.hpp"

namespace bp::conformance {

// The median of a call, and its uncertainty as that of the fraction is given.
struct PerfTime {
  double seconds = 0;
  double uncertainty = 0;
};

struct PerfChange {
  std::string id;
  PerfTime before, after;

  double ratio() const { return after.seconds / before.seconds; }
  // What both runs may differ by without a reason: a difference of logarithms, three sigmas.
  double uncertainty() const;
};

struct Comparison {
  std::string path;  // Of the baseline; "" if there is none.
  double max_regress = 0.05;
  std::vector<PerfChange> regressions, improvements;
  std::vector<std::string> missing;  // Measured then, and selected but not measured now.
  std::vector<std::string> fresh;    // Measured now, and not then.
  std::vector<std::string> unclear;  // Too noisy then or now: not compared.
  size_t compared = 0;
  double uncertainty = 0;             // Of the changes: the median over compared calls.
  std::vector<std::string> warnings;  // What else differs between the runs.
};

// What is read from a baseline, and what must hold for a comparison to mean anything.
class Baseline {
 public:
  // The file, or perf.json in the folder. Throws UsageError if it cannot be read.
  static Baseline read(const std::string& path);

  // The same of the text of the file `path`.
  static Baseline parse(const std::string& text, const std::string& path);

  // Throws UsageError where `now`, the document of this run, is of another device, backend or
  // suite, or was measured in another way.
  void require_comparable(const nlohmann::json& now) const;

  Comparison compare(const PerfSummary& summary, const nlohmann::json& now,
                     double max_regress) const;

 private:
  std::string path_;
  nlohmann::json document_;
};

}  // namespace bp::conformance
