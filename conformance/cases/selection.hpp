// Which cases of the list a command line asks for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/cases/case_list.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {

struct SelectionQuery {
  std::vector<std::string> filters;    // GLOB[:GLOB...][-GLOB[:GLOB...]]
  std::vector<std::string> regexes;    // Of the whole id; pattern.hpp says what is known.
  std::vector<std::string> ids;        // Named one by one: at any tier, in this order, and first.
  std::vector<std::string> caselists;  // Files with an id a line; "-" is the standard input.
  std::vector<std::string> excludes;   // Globs.
  Tier tier = Tier::kQuick;
  std::vector<std::string> dtypes;  // Only cases of these.
  uint64_t shard_index = 0, shard_count = 1;
  std::optional<uint64_t> shuffle_seed;
};

// Indices into `cases`, in the order in which they run. A pattern or a name that matches nothing
// throws NothingMatched; a case that is named twice, and a pattern that cannot be read, UsageError.
std::vector<size_t> select_cases(const CaseList& cases, const SelectionQuery& query);

bool matches_glob(const std::string& pattern, const std::string& id);

const char* tier_name(Tier tier);

}  // namespace bp::conformance
