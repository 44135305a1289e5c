// A run as documents for people: one self-contained HTML page, and Markdown for issues and wikis.
#pragma once

#include <string>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

std::string html_page(const RunHeader& header, const RunReport& report, const Summary& summary);
std::string markdown_page(const RunHeader& header, const RunReport& report, const Summary& summary);

// How many right cases of each op or group used up which tenth of what they are allowed; the last
// counts what is beyond.
using MarginHistogram = std::array<size_t, 11>;
std::map<std::string, MarginHistogram> margin_histograms(const Summary& summary);

}  // namespace bp::conformance
