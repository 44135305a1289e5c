// Selects the cases of the list that a command line asks for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/cases/case_list.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {

struct SelectionQuery {
  std::vector<std::string> filters;    // GLOB[:GLOB...][-GLOB[:GLOB...]]
  std::vector<std::string> regexes;    // Expressions for the whole id; pattern.hpp describes their
                                       // syntax.
  std::vector<std::string> ids;        // Ids of single cases: they run at any tier, in this order,
                                       // before all others.
  std::vector<std::string> caselists;  // Files with an id in each line; "-" is standard input.
  std::vector<std::string> excludes;   // Globs of cases to leave out.
  Tier tier = Tier::kQuick;
  std::vector<std::string> dtypes;  // Only cases of these dtypes are selected.
  uint64_t shard_index = 0, shard_count = 1;
  std::optional<uint64_t> shuffle_seed;
};

// Returns cases among which are all that `query` selects, and all that its patterns match. It is
// the whole suite, or, if each pattern begins with an op or with a family that has no op, as in
// op.add.*:stream.*, only these parts, which take a tenth of the time to make.
SharedCases cases_for(const SelectionQuery& query);

// Returns indices into `cases`, in the order in which they run. Throws NothingMatched for a pattern
// or a name that matches no case, and UsageError for a case that is named twice or a pattern that
// cannot be read.
std::vector<size_t> select_cases(const CaseList& cases, const SelectionQuery& query);

bool matches_glob(const std::string& pattern, const std::string& id);

const char* tier_name(Tier tier);

}  // namespace bp::conformance
