// What `dist` has found, for people and for programs.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/dist/bandwidth.hpp"

namespace bp::conformance::dist {

// One result that is no plain pass.
struct Result {
  std::string table;
  uint32_t ranks = 0;
  std::string section;  // "values", "faults", "bandwidth".
  std::string group;    // The row of the page: a kind of call, or a fault.
  std::string name;     // The check.
  Outcome outcome = Outcome::kFail;
  std::string text;
  std::vector<std::string> notes;
};

struct Tally {
  size_t passed = 0, failed = 0, skipped = 0;
  void add(Outcome outcome, size_t count = 1);
};

class Report {
 public:
  // Counts a result, and keeps it unless it is a pass.
  void add(Result result);
  void add_bandwidth(const std::string& table, uint32_t ranks, std::vector<BandwidthRow> rows);

  Tally total() const;
  const std::vector<Result>& results() const { return results_; }

  // Returns the page: counts, failures, skips with their reasons, and warnings.
  std::string text() const;
  // Returns "PASS", "FAIL" or "NOTHING RAN", and the numbers.
  std::string verdict() const;
  nlohmann::json json() const;

 private:
  struct Key {
    std::string table, section, group;
    auto operator<=>(const Key&) const = default;
  };
  struct Bandwidth {
    std::string table;
    uint32_t ranks;
    std::vector<BandwidthRow> rows;
  };

  std::string counts_text() const;
  std::string failures_text() const;
  std::string reasons_text(const char* title, bool (*is_shown)(Outcome)) const;

  std::vector<std::pair<Key, Tally>> tallies_;  // In the order of the run.
  std::vector<Result> results_;
  std::vector<Bandwidth> bandwidths_;
};

}  // namespace bp::conformance::dist
