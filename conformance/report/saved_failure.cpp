#include "conformance/report/saved_failure.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string document_text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// "a, b" as orders are blamed, apart.
std::vector<std::string> parts_of(std::string ids) {
  std::vector<std::string> parts;
  for (size_t comma; (comma = ids.find(", ")) != std::string::npos;) {
    parts.push_back(ids.substr(0, comma));
    ids.erase(0, comma + 2);
  }
  if (!ids.empty()) parts.push_back(ids);
  return parts;
}

std::string absolute_path(const std::string& path) {
  return path.empty() ? path : fs::absolute(path).string();
}

// How the attempt itself ended, where a Flake or the blame of an order stands in its place.
Result seen_by(const Judged& judged) {
  Result seen = judged.attempt.result;
  const auto was = seen.details.find("was");
  if (was == seen.details.end()) return seen;
  outcome_from_name(was->second, seen.outcome);
  seen.cause = seen.details.at("was_cause");
  return seen;
}

json session_json(const SessionOptions& session) {
  json described = to_json(session.setup);
  described.erase("parent");  // The process of the run, which is gone.
  described["timeout_seconds"] = session.timeout_seconds;
  return described;
}

SessionOptions session_from_json(json described) {
  SessionOptions session;
  described["parent"] = 0;
  session.setup = worker_setup_from_json(described);
  described.at("timeout_seconds").get_to(session.timeout_seconds);
  return session;
}

SavedFailure from_json(const json& described) {
  SavedFailure saved;
  described.at("case").get_to(saved.id);
  saved.change = described.value("change", "");
  saved.before = described.value("before", saved.before);
  saved.seen = result_from_json(described.at("seen"));
  described.at("plugin_path").get_to(saved.plugin_path);
  described.at("plugin_sha256").get_to(saved.plugin_sha256);
  saved.session = session_from_json(described.at("session"));
  saved.session.seed = std::stoull(described.at("seed").get<std::string>(), nullptr, 0);
  // The very library, however it was named then.
  if (!saved.plugin_path.empty()) saved.session.setup.plugin = saved.plugin_path;
  return saved;
}

}  // namespace

SavedFailure SavedFailure::read(const std::string& folder) {
  const std::string path = (fs::path(folder) / "case.json").string();
  std::ifstream file(path);
  if (!file) throw UsageError(path + ": cannot be read");
  const json described = json::parse(file, nullptr, false);
  if (!described.is_object()) throw UsageError(path + ": is no JSON object");
  try {
    return from_json(described);
  } catch (const std::exception& e) {
    throw UsageError(path + ": is no failure that this suite saved: " + e.what());
  }
}

void write_saved_failure(const RunHeader& header, const json& hello, const Judged& judged) {
  const fs::path folder = fs::path(header.folder) / "repro" / judged.id;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError(folder.string() + ": " + error.message());
  json described = to_json(judged.result);
  char seed[32];
  std::snprintf(seed, sizeof(seed), "0x%llx", static_cast<unsigned long long>(header.seed));
  described["case"] = judged.id;
  described["seed"] = seed;
  described["repro"] = repro_line(header, judged);
  described["is_confirmed"] = judged.is_confirmed;
  described["seen"] = to_json(seen_by(judged));
  described["plugin_sha256"] = hello.is_object() ? hello.value("sha256", "") : "";
  const json plugin = hello.is_object() ? hello.value("plugin", json::object()) : json::object();
  described["plugin_path"] = absolute_path(plugin.value("path", ""));
  described["session"] = session_json(header.session);
  if (judged.which != nullptr && !judged.which->change.empty()) {
    described["change"] = judged.which->change;
  }
  if (const auto after = judged.result.details.find("after");
      after != judged.result.details.end()) {
    described["before"] = parts_of(after->second);
  }
  write_file((folder / "case.json").string(), document_text(described));
  if (judged.attempt.output.empty()) return;
  write_file((folder / "output.txt").string(), judged.attempt.output);
}

std::vector<std::string> saved_failures_in(const std::string& folder) {
  std::error_code error;
  if (fs::exists(fs::path(folder) / "case.json", error)) return {folder};
  std::vector<std::string> found;
  for (const fs::path& parent : {fs::path(folder) / "repro", fs::path(folder)}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
      if (fs::exists(entry.path() / "case.json")) found.push_back(entry.path().string());
    }
    if (!found.empty()) break;
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace bp::conformance
