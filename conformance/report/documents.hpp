// A run as documents for people: one self-contained HTML page, and Markdown for issues and wikis.
#pragma once

#include <string>

#include "conformance/report/speed.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

// The page for people who choose a device: verdict, profiles and badges first. `speed` is what perf
// measured on the same device; NULL if nothing did.
std::string html_page(const RunHeader& header, const RunReport& report, const Summary& summary,
                      const Speed* speed = nullptr);
std::string markdown_page(const RunHeader& header, const RunReport& report, const Summary& summary);

// Return the plugin and the settings of a run in one line.
std::string plugin_text(const RunHeader& header, const RunReport& report);
std::string run_text(const RunHeader& header, const RunReport& report);

// For each op or group, counts of right cases by the tenth of the allowed error that they use up.
// The last entry counts the cases beyond it.
using MarginHistogram = std::array<size_t, 11>;
std::map<std::string, MarginHistogram> margin_histograms(const Summary& summary);

}  // namespace bp::conformance
