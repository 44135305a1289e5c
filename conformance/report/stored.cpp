#include "conformance/report/stored.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UsageError(path.string() + ": cannot be read");
  return text.str();
}

// Null if there is no such file.
json read_json(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  json parsed = json::parse(read_text(path), nullptr, false);
  if (!parsed.is_object()) throw UsageError(path.string() + ": not a JSON object");
  return parsed;
}

Tier tier_from_name(const std::string& name) {
  return name == "smoke" ? Tier::kSmoke : name == "full" ? Tier::kFull : Tier::kQuick;
}

// The case of this suite, or what its lines tell of one that another suite had.
Case case_of(const CaseList& suite, const StoredCase& stored) {
  if (const Case* known = suite.find(stored.id)) return *known;
  Case made;
  made.id = stored.id;
  made.tags = stored.tags;
  made.group = stored.id.substr(0, stored.id.find('.'));
  made.run = [](Context&) {};
  return made;
}

bool is_process(const StoredCase& stored) { return stored.id == "load" || stored.id == "unload"; }

}  // namespace

StoredRun StoredRun::read(const std::string& folder) {
  StoredRun run;
  run.folder_ = folder;
  const fs::path path = fs::path(folder) / "results.jsonl";
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw UsageError(folder + ": is not a folder");
  if (!fs::exists(path, error)) {
    throw UsageError(folder + ": holds no results.jsonl, so it is not a result of bp-conformance");
  }
  const std::string text = read_text(path);
  size_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;) {
    ++number;
    try {
      run.take_line(json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                text.begin() + static_cast<std::ptrdiff_t>(end)));
    } catch (const std::exception& e) {
      throw UsageError(path.string() + ":" + std::to_string(number) + ": " + e.what());
    }
    begin = end + 1;
    run.whole_bytes_ = begin;
  }
  run.info_ = read_json(fs::path(folder) / "info.json");
  run.summary_ = read_json(fs::path(folder) / "summary.json");
  return run;
}

void StoredRun::take_line(const json& line) {
  const std::string id = line.at("case").get<std::string>();
  const auto [found, is_new] = index_.emplace(id, cases_.size());
  if (is_new) cases_.push_back({.id = id});
  StoredCase& stored = cases_[found->second];
  Result result = result_from_json(line);
  if (line.value("final", false)) {
    stored.result = std::move(result);
    return;
  }
  stored.has_agreed = stored.attempt_count > 0 && ended_alike(stored.attempt.result, result);
  ++stored.attempt_count;
  stored.result = result;
  stored.attempt.result = std::move(result);
  stored.attempt.number = line.value("attempt", 1);
  stored.attempt.wall_ms = line.value("wall_ms", 0.0);
  stored.attempt.pid = line.value("pid", 0);
  stored.attempt.output = line.value("output", "");
  stored.attempt.output_bytes = line.value("output_bytes", uint64_t{0});
  stored.tags = line.value("tags", std::vector<std::string>());
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

RunHeader run_header_from_json(const json& json) {
  RunHeader header;
  const auto read = [&](const char* key, auto& member) {
    if (json.contains(key)) json.at(key).get_to(member);
  };
  read("plugin", header.plugin);
  read("seed", header.seed);
  header.tier = tier_from_name(json.value("tier", "quick"));
  read("is_whole_tier", header.is_whole_tier);
  read("repro_flags", header.repro_flags);
  read("environment", header.environment);
  read("command_line", header.command_line);
  read("budget_seconds", header.budget_seconds);
  read("waivers", header.waivers);
  read("selection", header.selection_sha256);
  return header;
}

RestoredRun restore(const StoredRun& run) {
  const CaseList suite = CaseList::whole_suite();
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
  if (asked != nullptr) restored.header = run_header_from_json(*asked);
  restored.header.folder = run.folder();
  restored.summary = summarize(restored.header, restored.cases, report, Waivers());
  return restored;
}

}  // namespace bp::conformance
