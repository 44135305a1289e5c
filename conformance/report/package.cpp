#include "conformance/report/package.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "conformance/cases/selection.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/archive.hpp"
#include "conformance/report/file_hash.hpp"
#include "conformance/usage_error.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/files/sha256.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using State = Check::State;

constexpr const char* kSchema = "backplane-package-1";
constexpr const char* kFolder = "conformance";
constexpr const char* kStatement = "STATEMENT.json";
constexpr const char* kManifest = "MANIFEST";

std::string manifest_of(const std::vector<ArchivedFile>& files) {
  std::string text;
  for (const ArchivedFile& file : files) {
    text += sha256(file.bytes) + "  " + std::to_string(file.bytes.size()) + "  " + file.name + "\n";
  }
  return text;
}

// Returns the size of the plugin that the run tested; throws UsageError if it is not that plugin
// any more.
uint64_t plugin_size(const json& info) {
  const std::string path =
      bytes_of_text(info.contains("plugin") ? info.at("plugin").value("path", "") : "");
  const std::string now = sha256_of_file(path);
  if (now.empty()) throw UsageError(path + ": the plugin of the run cannot be read");
  if (now != info.value("sha256", "")) {
    throw UsageError(path + ": has changed since the run; run it again before you package it");
  }
  return fs::file_size(path);
}

json statement_of(const StoredRun& run, const Statements& statements) {
  const json &info = run.info(), &summary = run.summary();
  json said = json::object();
  for (const auto& [key, value] : statements) said[key] = value;
  return {{"schema", kSchema},
          {"statements", std::move(said)},
          {"plugin",
           {{"name", info.at("plugin").value("name", "")},
            {"version", info.at("plugin").value("version", "")},
            {"sha256", info.value("sha256", "")},
            {"size_bytes", plugin_size(info)}}},
          {"device", info.at("targets").at(info.value("target", size_t{0})).value("device", "")},
          {"suite", info.value("suite", "")},
          {"tier", info.at("run").value("tier", "")},
          {"seed", info.at("run").at("seed")},
          {"verdict", summary.value("verdict", "")},
          {"environment", info.value("environment", json::object())}};
}

void add_optional(const fs::path& path, const char* name, std::vector<ArchivedFile>& files) {
  std::error_code error;
  if (fs::exists(path, error)) files.push_back({name, read_regular_file(path.string())});
}

const ArchivedFile* find_file(const std::vector<ArchivedFile>& files, const char* name) {
  const auto found = std::ranges::find(files, name, &ArchivedFile::name);
  return found == files.end() ? nullptr : &*found;
}

std::string bytes_of(const std::vector<ArchivedFile>& files, const char* name,
                     const std::string& package) {
  const ArchivedFile* file = find_file(files, name);
  if (file == nullptr) throw UsageError(package + ": has no file " + name);
  return file->bytes;
}

Check check_files(std::vector<ArchivedFile> files, const std::string& package) {
  const std::string manifest = bytes_of(files, kManifest, package);
  std::erase_if(files, [](const ArchivedFile& file) { return file.name == kManifest; });
  if (manifest_of(files) == manifest) {
    return {"files", State::kHolds, std::to_string(files.size()) + " files have their hashes"};
  }
  std::istringstream lines(manifest);
  std::set<std::string> stated;
  for (std::string line; std::getline(lines, line);) stated.insert(line);
  for (const ArchivedFile& file : files) {
    std::string line = manifest_of({file});
    line.pop_back();
    if (!stated.contains(line)) {
      return {"files", State::kFails, file.name + " is not the file that MANIFEST states"};
    }
  }
  return {"files", State::kFails, "MANIFEST states files that the package does not have"};
}

// Requires that each case has one final result, and that the selection is the tier that the run
// states. Only the same version of the suite knows the cases of the tier.
Check check_cases(const StoredRun& run) {
  const json& asked = run.info().at("run");
  if (run.info().value("suite", "") != kSuiteVersion) {
    return {"cases", State::kNotChecked,
            "the run is of suite " + run.info().value("suite", "") + ", and this is " +
                kSuiteVersion + ": run the other version to check that no case is missing"};
  }
  if (!asked.value("is_whole_tier", false)) {
    return {"cases", State::kNotChecked,
            "the run had a selection of its own: nobody can tell that it is whole"};
  }
  const std::string tier = asked.value("tier", "");
  SelectionQuery query;
  query.tier = tier == "smoke" ? Tier::kSmoke : tier == "full" ? Tier::kFull : Tier::kQuick;
  const CaseList& suite = CaseList::whole_suite();
  size_t missing = 0;
  std::string first;
  const std::vector<size_t> selection = select_cases(suite, query);
  for (const size_t index : selection) {
    if (run.find(suite[index].id) != nullptr) continue;
    if (missing++ == 0) first = suite[index].id;
  }
  if (missing > 0) {
    return {
        "cases", State::kFails,
        std::to_string(missing) + " cases of tier " + tier + " have no result, such as " + first};
  }
  return {"cases", State::kHolds,
          "each of the " + std::to_string(selection.size()) + " cases of tier " + tier +
              " has a result"};
}

Check check_summary(const StoredRun& run) {
  const RestoredRun restored = restore(run);
  const Summary& again = restored.summary;
  const JsonObject stated(run.summary(), "summary.json");
  const auto differs = [&](const char* key, size_t count) {
    return stated.count(key, UINT64_MAX) != count;
  };
  for (const auto& [key, count] :
       {std::pair{"passed", again.passed}, std::pair{"failed", again.failed},
        std::pair{"skipped", again.skipped}}) {
    if (!differs(key, count)) continue;
    return {"verdict", State::kFails,
            "the results give " + std::to_string(count) + " " + key + ", and summary.json states " +
                std::to_string(stated.count(key, UINT64_MAX))};
  }
  if (stated.text("verdict") != again.verdict) {
    return {"verdict", State::kFails,
            "the results give \"" + again.verdict + "\", and summary.json states \"" +
                stated.text("verdict") + "\""};
  }
  return {"verdict", State::kHolds, "the results give \"" + again.verdict + "\""};
}

Check check_statement(const json& statement, const StoredRun& run) {
  const json &plugin = statement.at("plugin"), &info = run.info();
  const auto fails = [](const std::string& what) {
    return Check{"statement", State::kFails, "STATEMENT.json and info.json differ in " + what};
  };
  if (plugin.value("sha256", "") != info.value("sha256", ""))
    return fails("the hash of the plugin");
  if (statement.value("tier", "") != info.at("run").value("tier", "")) return fails("the tier");
  if (statement.at("seed") != info.at("run").at("seed")) return fails("the seed");
  if (statement.value("suite", "") != info.value("suite", "")) return fails("the suite");
  if (statement.value("verdict", "") != run.summary().value("verdict", "")) {
    return {"statement", State::kFails, "STATEMENT.json and summary.json differ in the verdict"};
  }
  return {"statement", State::kHolds, "it states what the run has"};
}

// Throws UsageError unless the members that checks read are there.
void require_members(const json& statement, const StoredRun& run, const std::string& package) {
  const JsonObject told(statement, package + ": " + kStatement);
  if (told.text("schema") != kSchema) {
    told.refuse("schema", "\"" + told.text("schema") + "\"", std::string("\"") + kSchema + "\"");
  }
  for (const char* key : {"suite", "tier", "verdict", "device"}) static_cast<void>(told.text(key));
  static_cast<void>(told.object("plugin").text("sha256"));
  static_cast<void>(told.count("seed", UINT64_MAX));
  if (run.info().is_null() || run.summary().is_null()) {
    throw UsageError(package + ": info.json or summary.json is empty");
  }
  const JsonObject info(run.info(), package + ": info.json");
  static_cast<void>(info.text("sha256"));
  static_cast<void>(info.object("run").count("seed", UINT64_MAX));
}

}  // namespace

std::string make_package(const std::string& folder, const Statements& statements) {
  const StoredRun run = StoredRun::read(folder);
  const bool is_whole = run.info().is_object() && run.info().contains("targets") &&
                        run.info().contains("plugin") && run.info().contains("run") &&
                        run.summary().is_object() && !run.summary().value("is_interrupted", false);
  if (!is_whole) {
    throw UsageError(folder + ": the run did not end; --resume " + folder + " goes on with it");
  }
  std::vector<ArchivedFile> files;
  files.push_back({kStatement, json_text(statement_of(run, statements), 2) + "\n"});
  for (const char* name : {"results.jsonl", "info.json", "summary.json"}) {
    files.push_back({name, read_regular_file((fs::path(folder) / name).string())});
  }
  add_optional(fs::path(folder) / "perf.json", "perf.json", files);
  const std::string waivers = run_header_from_json(run.info().at("run"), "info.json: run").waivers;
  if (!waivers.empty()) add_optional(waivers, "waivers.yaml", files);
  files.insert(files.begin() + 1, {kManifest, manifest_of(files)});
  return write_archive(kFolder, files);
}

Package open_package(const std::string& bytes, const std::string& name) {
  const std::vector<ArchivedFile> files = read_archive(bytes, name);
  Package package;
  package.checks.push_back(check_files(files, name));
  package.statement = parse_json(bytes_of(files, kStatement, name), name + ": " + kStatement);
  package.run =
      StoredRun::parse(name, bytes_of(files, "results.jsonl", name),
                       bytes_of(files, "info.json", name), bytes_of(files, "summary.json", name));
  require_members(package.statement, package.run, name);
  package.checks.push_back(check_cases(package.run));
  package.checks.push_back(check_summary(package.run));
  package.checks.push_back(check_statement(package.statement, package.run));
  return package;
}

Check compare_samples(const StoredRun& stated, const StoredRun& again) {
  size_t count = 0;
  for (const StoredCase& now : again.cases()) {
    const StoredCase* before = stated.find(now.id);
    if (before == nullptr) continue;
    ++count;
    if (now.result.outcome == before->result.outcome) continue;
    return {"samples", State::kFails,
            now.id + " ended as " + outcome_name(before->result.outcome) +
                " in the package, and ends as " + outcome_name(now.result.outcome) +
                " now: " + now.result.message.substr(0, now.result.message.find('\n'))};
  }
  if (count == 0) return {"samples", State::kFails, "no case of the sample ran"};
  return {"samples", State::kHolds, std::to_string(count) + " results ended as in the package"};
}

bool is_sound(const std::vector<Check>& checks) {
  return std::ranges::none_of(checks, [](const Check& c) { return c.state == State::kFails; });
}

std::string checks_text(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    const char* word = check.state == State::kHolds   ? "holds      "
                       : check.state == State::kFails ? "FAILS      "
                                                      : "not checked";
    std::string name = check.name;
    name.resize(std::max<size_t>(name.size(), 10), ' ');
    text +=
        word + std::string("  ") + name + "  " + clean_text(check.text, LineBreaks::kEscape) + "\n";
  }
  return text;
}

}  // namespace bp::conformance
