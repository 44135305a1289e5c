// What became of drawn mutants, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "conformance/cli/command_line.hpp"
#include "conformance/faults/tally.hpp"

namespace bp::conformance {

// Prints the survivors, the wrong causes and the shares by family; if `is_verbose`, also those by
// kind, place, condition and op.
void print_trials(const std::vector<faults::Trial>& trials, bool is_verbose);

// Returns the JSON of all trials. `line` has the seed and the tier.
std::string document_of(const std::vector<faults::Trial>& trials, const CommandLine& line);

}  // namespace bp::conformance
