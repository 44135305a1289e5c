// The ceilings of a device, and how far they are to be trusted.
//
// All ceilings are measured in passes, each in a process of its own: the best of a process whose
// threads or pages lie badly is steady, and wrong. A ceiling is the best of the passes, and as
// uncertain as the next best is far away. Two passes are the rule; more follow, to four,
// while the best ones differ by more than 5 % or just one has settled.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace bp::conformance {

// 0 where it was not measured.
struct Ceilings {
  double copy_bytes_per_s = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double update_bytes_per_s = 0;
  double launch_s = 0;
  double batched_launch_s = 0;
  std::map<std::string, double> flops_per_s;  // By dtype.
  double copy_yardstick_s = 0;
  std::map<std::string, double> product_yardstick_s;  // By dtype.

  // Of "copy", "read", "matmul.f32", ...: a difference of logarithms, which is a share while it is
  // small. Infinite where a ceiling did not settle, or no pass confirms another.
  std::map<std::string, double> uncertainty;

  double uncertainty_of(const std::string& name) const;
};

// One ceiling of all passes.
Ceilings best_of_passes(const std::vector<Ceilings>& passes);

// Whether there are too few, or another one would help.
bool needs_another(const std::vector<Ceilings>& passes);

// Passes that differ by more than this disagree.
constexpr double kPassesAgree = 0.05;

}  // namespace bp::conformance
