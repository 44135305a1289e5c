// What perf.json says about the speed of a device, for pages.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bp::conformance {

struct SpeedRow {
  std::string id;  // The id without "perf.".
  std::string grade;
  double median_s = 0;
  double fraction = 0;  // The share of the roof; 0 if the call has no roof.
  double bytes_per_s = 0, flops_per_s = 0;
  bool is_flops_bound = false;
};

struct Speed {
  std::string device, sha256;  // The device and the plugin that were measured.
  double copy_bytes_per_s = 0, read_bytes_per_s = 0, write_bytes_per_s = 0, launch_s = 0;
  std::map<std::string, double> flops_per_s;  // The peaks of matmul by dtype.
  std::vector<SpeedRow> rows;                 // The calls that were measured and are right.
  size_t failed = 0;                          // The calls whose results are wrong.
  size_t not_run = 0;                         // The calls that no kernel takes.

  bool is_empty() const { return rows.empty(); }
};

// Reads perf.json, or the perf.json in a folder. Throws UsageError.
Speed read_speed(const std::string& path);
// Reads `document`, which errors call `name`. Throws UsageError.
Speed speed_of(const nlohmann::json& document, const std::string& name);

// Return a rate, a time and a size with their units: "3.1 GB/s", "24 GFLOP/s", "1.2 ms", "4 GiB".
std::string bytes_rate_text(double per_second);
std::string flops_rate_text(double per_second);
std::string duration_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace bp::conformance
