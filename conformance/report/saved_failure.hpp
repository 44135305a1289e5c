// One failure of a run as it lies under repro/<case id>/, or what file_name_of() makes of a
// long id: enough to run it again without its run.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct SavedFailure {
  std::string id;
  std::string change;               // Of a case that shrink made: Case::change; else "".
  std::vector<std::string> before;  // Cases without which it passes, in their order.
  Result seen;                      // How its last attempt ended, before waivers and confirmation.
  std::string plugin_path, plugin_sha256;
  SessionOptions session;  // Seed, time limit, options and device.

  // Reads <folder>/case.json. Throws UsageError, which names what is missing or wrong.
  static SavedFailure read(const std::string& folder);
};

// Writes case.json, and what the plugin printed, into a folder of the run. Throws
// OutputError.
void write_saved_failure(const RunHeader& header, const nlohmann::json& hello,
                         const Judged& judged);

// The folders below `folder` that hold a saved failure: itself, or those of a run; sorted.
std::vector<std::string> saved_failures_in(const std::string& folder);

}  // namespace bp::conformance
