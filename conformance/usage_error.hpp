// Errors that end the program because of its input: a command line, or a file.
#pragma once

#include <stdexcept>

namespace bp::conformance {

// The command line, or a file that it names, is wrong: the exit code is 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The command line is right, but selects no case: exit code 5.
struct NothingMatched : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bp::conformance
