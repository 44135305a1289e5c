// One failure of a run, as it is stored under repro/<case id>/, or under the name that
// file_name_of() makes of a long id. It suffices to repeat the failure without the run.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

struct SavedFailure {
  std::string id;
  std::string change;               // Case::change of a case that shrink made; else "".
  std::vector<std::string> before;  // The cases without which it passes, in their order.
  Result seen;                      // The result of its last attempt, before waivers and
                                    // confirmation.
  std::string plugin_path, plugin_sha256;
  SessionOptions session;  // Seed, time limit, options and device of the session.

  // Reads <folder>/case.json. Throws UsageError, which names what is missing or wrong.
  static SavedFailure read(const std::string& folder);
};

// Writes case.json and the output of the plugin into a folder of the run. Throws OutputError.
void write_saved_failure(const RunHeader& header, const nlohmann::json& hello,
                         const Judged& judged);

// Returns the folders that hold a saved failure, sorted: `folder` itself, or the folders below it
// if it is a run.
std::vector<std::string> saved_failures_in(const std::string& folder);

}  // namespace bp::conformance
