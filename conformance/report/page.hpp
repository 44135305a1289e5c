// The verdict page: one screen that says what is right, wrong, missing and unstable.
#pragma once

#include <string>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct PageOptions {
  bool has_color = false;
  bool is_verbose = false;  // Every group of failures, not the ten largest.
  bool is_quiet = false;    // The verdict and the counts alone.
  int slowest = 0;          // So many of the slowest cases at the end.
  bool explains_fallbacks = false;
};

std::string verdict_page(const RunHeader& header, const RunReport& report, const Summary& summary,
                         const PageOptions& options);

}  // namespace bp::conformance
