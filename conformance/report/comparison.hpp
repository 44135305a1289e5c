// Several runs side by side, for people who choose between devices.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/speed.hpp"
#include "conformance/report/stored.hpp"

namespace bp::conformance {

// One column: a run, and what perf measured on its device, if anything.
struct ComparedRun {
  std::string name;
  const RestoredRun* run = nullptr;
  Speed speed;
};

// Returns a page that can be read on paper too.
std::string comparison_page(const std::vector<ComparedRun>& runs);
// Returns the same as a table for a terminal, without the ops.
std::string comparison_text(const std::vector<ComparedRun>& runs);

}  // namespace bp::conformance
