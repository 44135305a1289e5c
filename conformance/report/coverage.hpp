// Shows which calls of each op a backend runs: op x dtype x layout x rank, from the results of the
// op cases.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

// How the cases of one cell were served, from best to worst: a cell shows its worst.
enum class Served { kNative, kFallback, kNotRun, kRefused, kMissing, kUnclaimed, kWrong, kCrash };
constexpr size_t kServedCount = 8;

const char* served_name(Served served);
Served served_of(Outcome outcome);

// Returns the layout class of the case's least usual tensor, as one word. It is "" if the case is
// not one call of an op.
std::string layout_class_of(const Case& which);

// Returns the highest rank of the case's tensors.
size_t rank_of(const Case& which);

// Counts by Served.
using ServedCounts = std::array<size_t, kServedCount>;
size_t total_of(const ServedCounts& counts);
// Returns the worst way in which a case was served. Refusals narrow a claim if other calls work, so
// they do not count then.
Served worst_of(const ServedCounts& counts);
// Returns "96", "W3/96" or "-".
std::string cell_text(const ServedCounts& counts);

class Coverage {
 public:
  using Counts = ServedCounts;

  // The dtypes of an op, each with its counts.
  struct OpRow {
    std::string op;
    std::map<std::string, Counts> dtypes;
  };

  // Collects the op cases of `summary`.
  explicit Coverage(const Summary& summary);

  // Returns a table of at most 100 columns. It has a line for each op and group of dtypes that are
  // served alike.
  std::string text(bool by_rank) const;
  std::string totals_text() const;

  // Returns op x dtype, over all layouts and ranks, in the order of the cases.
  std::vector<OpRow> by_dtype() const;
  // Returns the dtypes of all ops, in the order of the ABI.
  std::vector<std::string> dtypes() const;
  nlohmann::json json() const;

 private:
  struct Key {
    std::string op, dtype, layout;
    size_t rank;
    auto operator<=>(const Key&) const = default;
  };
  using Row = std::map<std::string, Counts>;  // The counts by the name of their column.

  static std::string column_of(const Key& key, bool by_rank);
  Row row_of(const std::string& op, const std::string& dtype, bool by_rank) const;

  std::map<Key, Counts> cells_;
  std::vector<std::pair<std::string, std::vector<std::string>>> ops_;  // The ops with their dtypes.
  Counts total_{};
};

}  // namespace bp::conformance
