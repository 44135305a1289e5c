// The ceilings of a device, and how certain they are.
//
// All ceilings are measured in passes, each in a process of its own, because a process whose
// threads or pages are placed badly gives steady but wrong results. A ceiling is the best result of
// the passes, and its uncertainty is the distance to the second best. There are two passes, and up
// to four while the best ones differ by more than 5 % or only one has settled.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace bp::conformance {

// The ceilings; a ceiling that was not measured is 0.
struct Ceilings {
  double copy_bytes_per_s = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double update_bytes_per_s = 0;
  double launch_s = 0;
  double batched_launch_s = 0;
  std::map<std::string, double> flops_per_s;  // The rate of each dtype.
  double copy_yardstick_s = 0;
  std::map<std::string, double> product_yardstick_s;  // The seconds of each dtype.

  // The uncertainty of each ceiling by its name: "copy", "read", "matmul.f32", ... It is a
  // difference of logarithms, which is a share while it is small. It is infinite if the ceiling did
  // not settle, or if no second pass confirms it.
  std::map<std::string, double> uncertainty;

  double uncertainty_of(const std::string& name) const;
};

// Combines the ceilings of all passes into one value each.
Ceilings best_of_passes(const std::vector<Ceilings>& passes);

// Returns whether there are too few passes, or another one would help.
bool needs_another(const std::vector<Ceilings>& passes);

// Two passes disagree if they differ by more than this.
constexpr double kPassesAgree = 0.05;

}  // namespace bp::conformance
