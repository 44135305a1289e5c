// A run as documents for people: one self-contained HTML page, and Markdown for issues and wikis.
#pragma once

#include <string>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

std::string html_page(const RunHeader& header, const RunReport& report, const Summary& summary);
std::string markdown_page(const RunHeader& header, const RunReport& report, const Summary& summary);

// For each op or group, counts of right cases by the tenth of the allowed error that they use up.
// The last entry counts the cases beyond it.
using MarginHistogram = std::array<size_t, 11>;
std::map<std::string, MarginHistogram> margin_histograms(const Summary& summary);

}  // namespace bp::conformance
