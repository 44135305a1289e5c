// What the two kinds of selftest share: the known mutants, and those that are drawn.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/cli/command_line.hpp"

namespace bp::conformance {

// The patience for launches of mutants that read tensors through the host. They wait for the stream
// of the launch, however long a case holds it.
constexpr uint64_t kShortPatienceMs = 100;

// Returns the path of the mutants, which lie in the folder of the program's libraries.
std::string mutant_plugin(const CommandLine& line);

// Returns a path that does not depend on the worker's folder. A name stays as it is, because the
// mutant's loader looks it up.
std::string wrapped_path(const std::string& plugin);

// Runs the mutants that `--random` draws or `--fault` names. Returns the exit code.
int random_selftest(const CommandLine& line);

}  // namespace bp::conformance
