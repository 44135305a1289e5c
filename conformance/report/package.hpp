// Packages: the results of a run in one file, which others can check.
//
// The archive holds STATEMENT.json, MANIFEST, results.jsonl, info.json and summary.json, and
// perf.json and the waivers if the run had them. MANIFEST has the SHA-256 and the size of each
// other file. A signature lies beside the package, in FILE.sig.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/report/stored.hpp"

namespace bp::conformance {

// What the vendor says about the device, beyond what the run has found: "vendor", "product", ...
using Statements = std::map<std::string, std::string>;

// Returns the bytes of the package. Throws UsageError if the run did not end, or if its folder
// lacks a file.
std::string make_package(const std::string& folder, const Statements& statements);

// One thing that was checked, and what was found.
struct Check {
  enum class State { kHolds, kFails, kNotChecked };
  std::string name;
  State state = State::kHolds;
  std::string text;
};

struct Package {
  nlohmann::json statement;
  StoredRun run;
  std::vector<Check> checks;
};

// Reads a package and checks all that can be checked without the device: the hashes of the files,
// that each case of the selection has one result, and that counts and verdict follow from the
// results. Throws UsageError if `bytes` is no package; errors call it `name`.
Package open_package(const std::string& bytes, const std::string& name);

// Compares the results of a second run of some cases with those of the package.
Check compare_samples(const StoredRun& stated, const StoredRun& again);

// Returns whether no check has failed.
bool is_sound(const std::vector<Check>& checks);
std::string checks_text(const std::vector<Check>& checks);

}  // namespace bp::conformance
