// The verdict page: one screen that shows what is right, wrong, missing and unstable.
#pragma once

#include <string>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct PageOptions {
  bool has_color = false;
  bool is_verbose = false;  // Shows every group of failures, not only the ten largest.
  bool is_quiet = false;    // Shows only the verdict and the counts.
  int slowest = 0;          // The number of slowest cases to list at the end.
  bool explains_fallbacks = false;
};

std::string verdict_page(const RunHeader& header, const RunReport& report, const Summary& summary,
                         const PageOptions& options);

}  // namespace bp::conformance
