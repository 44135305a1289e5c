// What ends the program because of what it was given: a command line, or a file of others.
#pragma once

#include <stdexcept>

namespace bp::conformance {

// The command line, or a file that it names, is wrong: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// It is right, and no case is left: exit code 5.
struct NothingMatched : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bp::conformance
