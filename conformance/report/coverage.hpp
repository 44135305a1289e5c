// What of each op a backend runs: op x dtype x layout x rank, from the results of the op cases.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

// What the cases of one cell came to. The order is that of badness: a cell shows its worst.
enum class Served { kNative, kFallback, kNotRun, kRefused, kMissing, kUnclaimed, kWrong, kCrash };
constexpr size_t kServedCount = 8;

const char* served_name(Served served);
Served served_of(Outcome outcome);

// How the tensors of a case lie, as one word: that of the least usual one. "" if the case is not
// one call of an op.
std::string layout_class_of(const Case& which);

// The highest rank of its tensors.
size_t rank_of(const Case& which);

class Coverage {
 public:
  using Counts = std::array<size_t, kServedCount>;

  // Takes the op cases of `summary`.
  explicit Coverage(const Summary& summary);

  // A table of at most 100 columns: a line for each op and the dtypes that are served alike.
  std::string text(bool by_rank) const;
  std::string totals_text() const;
  nlohmann::json json() const;

 private:
  struct Key {
    std::string op, dtype, layout;
    size_t rank;
    auto operator<=>(const Key&) const = default;
  };
  using Row = std::map<std::string, Counts>;  // By the name of the column.

  static std::string column_of(const Key& key, bool by_rank);
  Row row_of(const std::string& op, const std::string& dtype, bool by_rank) const;

  std::map<Key, Counts> cells_;
  std::vector<std::pair<std::string, std::vector<std::string>>> ops_;  // With their dtypes.
  Counts total_{};
};

}  // namespace bp::conformance
