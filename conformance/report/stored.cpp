#include "conformance/report/stored.hpp"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "conformance/json_file.hpp"
#include "conformance/runner/describe.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns "" if there is no such file.
std::string read_optional(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_regular_file(path.string()) : "";
}

// Returns null for "".
json parse_object(const std::string& text, const std::string& name) {
  if (text.empty()) return nullptr;
  json parsed = parse_json(text, name);
  static_cast<void>(JsonObject(parsed, name));
  return parsed;
}

Tier tier_from_name(const std::string& name) {
  return name == "smoke" ? Tier::kSmoke : name == "full" ? Tier::kFull : Tier::kQuick;
}

// Returns the case of this suite, or the description that the lines give of a case of another
// suite.
Case case_of(const CaseList& suite, const StoredCase& stored) {
  if (const Case* known = suite.find(stored.id)) return *known;
  Case made;
  made.id = stored.id;
  made.tags = stored.tags;
  made.group = stored.id.substr(0, stored.id.find('.'));
  made.run = [](Context&) {};
  return made;
}

void check_summary(const json& summary, const std::string& name) {
  const JsonObject told(summary, name);
  static_cast<void>(told.flag("is_interrupted", false));
  static_cast<void>(told.number("wall_seconds", 0, kMostSeconds, 0));
}

bool is_process(const StoredCase& stored) { return stored.id == "load" || stored.id == "unload"; }

}  // namespace

StoredRun StoredRun::read(const std::string& folder) {
  const fs::path path = fs::path(folder) / "results.jsonl";
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw UsageError(folder + ": is not a folder");
  if (!fs::exists(path, error)) {
    throw UsageError(folder + ": holds no results.jsonl, so it is not a result of bp-conformance");
  }
  return parse(folder, read_regular_file(path.string()),
               read_optional(fs::path(folder) / "info.json"),
               read_optional(fs::path(folder) / "summary.json"));
}

StoredRun StoredRun::parse(const std::string& folder, const std::string& results,
                           const std::string& info, const std::string& summary) {
  StoredRun run;
  run.folder_ = folder;
  const std::string results_name = (fs::path(folder) / "results.jsonl").string();
  size_t number = 0;
  for (size_t begin = 0, end; (end = results.find('\n', begin)) != std::string::npos;) {
    const std::string_view line(results.data() + begin, end - begin);
    ++number;
    run.take_line(parse_json(line, results_name, number),
                  results_name + ":" + std::to_string(number));
    begin = end + 1;
    run.whole_bytes_ = begin;
  }
  const std::string info_name = (fs::path(folder) / "info.json").string();
  run.info_ = parse_object(info, info_name);
  if (!run.info_.is_null()) {
    check_description(run.info_, info_name);
    if (run.info_.contains("run")) {
      static_cast<void>(run_header_from_json(run.info_.at("run"), info_name + ": run"));
    }
  }
  const std::string summary_name = (fs::path(folder) / "summary.json").string();
  run.summary_ = parse_object(summary, summary_name);
  if (!run.summary_.is_null()) check_summary(run.summary_, summary_name);
  return run;
}

void StoredRun::take_line(const json& line, const std::string& name) {
  const JsonObject told(line, name);
  const std::string id = clean_text(told.text("case"), LineBreaks::kEscape);
  const auto [found, is_new] = index_.emplace(id, cases_.size());
  if (is_new) cases_.push_back({.id = id});
  StoredCase& stored = cases_[found->second];
  Result result = result_from_json(line, name);
  if (told.flag("final", false)) {
    stored.result = std::move(result);
    return;
  }
  stored.has_agreed = stored.attempt_count > 0 && ended_alike(stored.attempt.result, result);
  ++stored.attempt_count;
  stored.result = result;
  stored.attempt.result = std::move(result);
  stored.attempt.number = static_cast<int>(told.count("attempt", INT32_MAX, 1));
  stored.attempt.wall_ms = told.number("wall_ms", 0, kMostSeconds * 1e3, 0);
  stored.attempt.pid = static_cast<int>(told.count("pid", INT32_MAX, 0));
  const std::string output = told.text("output", "");
  stored.attempt.output = clean_text(output, LineBreaks::kKeep, output.size());
  stored.attempt.output_bytes = told.count("output_bytes", UINT64_MAX, 0);
  stored.tags.clear();
  for (const std::string& tag : told.texts("tags")) {
    stored.tags.push_back(clean_text(tag, LineBreaks::kEscape));
  }
}

const StoredCase* StoredRun::find(std::string_view id) const {
  const auto found = index_.find(std::string(id));
  return found == index_.end() ? nullptr : &cases_[found->second];
}

json to_json(const RunHeader& header) {
  return {{"plugin", header.plugin},
          {"seed", header.seed},
          {"tier", tier_name(header.tier)},
          {"is_whole_tier", header.is_whole_tier},
          {"repro_flags", header.repro_flags},
          {"environment", header.environment},
          {"command_line", header.command_line},
          {"budget_seconds", header.budget_seconds},
          {"waivers", header.waivers},
          {"selection", header.selection_sha256}};
}

RunHeader run_header_from_json(const json& json, const std::string& name) {
  const JsonObject told(json, name);
  RunHeader header;
  header.plugin = told.text("plugin", "");
  header.seed = told.count("seed", UINT64_MAX, header.seed);
  header.tier = tier_from_name(told.text("tier", "quick"));
  header.is_whole_tier = told.flag("is_whole_tier", header.is_whole_tier);
  header.repro_flags = told.texts("repro_flags");
  header.environment = told.texts("environment");
  header.command_line = told.texts("command_line");
  header.budget_seconds = told.number("budget_seconds", 0, kMostSeconds, 0);
  header.waivers = told.text("waivers", "");
  header.selection_sha256 = told.text("selection", "");
  return header;
}

namespace {

// Makes the cases of a run. To make the whole suite takes longer than to look for a few cases.
SharedCases suite_for(const StoredRun& run) {
  constexpr size_t kFewCases = 500;
  if (run.cases().size() > kFewCases) return borrowed(CaseList::whole_suite());
  std::vector<std::string> ids;
  for (const StoredCase& stored : run.cases()) ids.push_back(stored.id);
  return std::make_shared<const CaseList>(CaseList::of(ids));
}

}  // namespace

RestoredRun restore(const StoredRun& run) {
  const SharedCases made = suite_for(run);
  const CaseList& suite = *made;
  std::vector<Case> all;
  for (const StoredCase& stored : run.cases()) {
    if (!is_process(stored)) all.push_back(case_of(suite, stored));
  }
  RestoredRun restored{CaseList(std::move(all)), {}, {}, {}};
  RunReport& report = restored.report;
  for (const StoredCase& stored : run.cases()) {
    Attempt attempt = stored.attempt;
    attempt.result = stored.result;
    if (is_process(stored)) {
      attempt.index = stored.id == "load" ? kLoad : kUnload;
      report.process.push_back(std::move(attempt));
      continue;
    }
    const Case* which = restored.cases.find(stored.id);
    const auto index = static_cast<size_t>(which - restored.cases.cases().data());
    attempt.index = index;
    report.finals.push_back({.index = index,
                             .attempt = std::move(attempt),
                             .attempt_count = stored.attempt_count,
                             .is_confirmed = stored.has_agreed});
  }
  report.hello = run.info();
  report.is_interrupted = run.summary().is_null() || run.summary().value("is_interrupted", false);
  if (!run.summary().is_null()) report.wall_seconds = run.summary().value("wall_seconds", 0.0);
  const json* asked =
      run.info().is_object() && run.info().contains("run") ? &run.info().at("run") : nullptr;
  if (asked != nullptr)
    restored.header = run_header_from_json(*asked, run.folder() + "/info.json: run");
  restored.header.folder = run.folder();
  restored.summary = summarize(restored.header, restored.cases, report, Waivers());
  return restored;
}

}  // namespace bp::conformance
