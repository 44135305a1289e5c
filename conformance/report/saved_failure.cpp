#include "conformance/report/saved_failure.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string document_text(const json& value) { return json_text(value, 2) + "\n"; }

// Splits "a, b", the form in which a result names the cases of an order dependence.
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

// What the worker says of the path is text. If it was given a path that is no text, that path is
// the one which can be opened again.
std::string library_path(const RunHeader& header, const json& hello) {
  const json plugin = hello.is_object() ? hello.value("plugin", json::object()) : json::object();
  const std::string told = plugin.value("path", "");
  const std::string& given = header.session.setup.plugin;
  const bool is_text = text_of_bytes(given) == given;
  return absolute_path(is_text || told.empty() ? told : given);
}

// How the attempt itself ended, where a Flake or the blame of an order stands in its place.
Result seen_by(const Judged& judged) {
  Result seen = judged.attempt.result;
  const auto was = seen.details.find("was"), cause = seen.details.find("was_cause");
  // The details may come from the worker, so both have to be present.
  if (was == seen.details.end() || cause == seen.details.end()) return seen;
  if (outcome_from_name(was->second, seen.outcome)) seen.cause = cause->second;
  return seen;
}

json session_json(const SessionOptions& session) {
  json described = to_json(session.setup);
  described.erase("parent");  // The supervisor's process has ended.
  described["timeout_seconds"] = session.timeout_seconds;
  return described;
}

SessionOptions session_from_json(const JsonObject& described, const json& value) {
  SessionOptions session;
  session.setup = worker_setup_from_json(value, described.name());
  session.timeout_seconds = described.number("timeout_seconds", 1e-9, kMostSeconds);
  return session;
}

uint64_t seed_from(const JsonObject& described) {
  const std::string text = described.text("seed");
  char* end = nullptr;
  errno = 0;
  const uint64_t seed = std::strtoull(text.c_str(), &end, 0);
  const bool is_number = !text.empty() && text[0] >= '0' && text[0] <= '9' && *end == '\0';
  if (!is_number || errno != 0) described.refuse("seed", "\"" + text + "\"", "a number of 64 bits");
  return seed;
}

SavedFailure from_json(const json& value, const std::string& path) {
  const JsonObject described(value, path);
  SavedFailure saved;
  saved.id = described.text("case");
  saved.change = described.text("change", "");
  saved.before = described.texts("before");
  saved.seen = result_from_json(described.member("seen"), path + ": seen");
  saved.plugin_path = bytes_of_text(described.text("plugin_path"));
  saved.plugin_sha256 = described.text("plugin_sha256");
  saved.session = session_from_json(described.object("session"), described.member("session"));
  saved.session.seed = seed_from(described);
  // Replays load the same library, whatever name the run used.
  if (!saved.plugin_path.empty()) saved.session.setup.plugin = saved.plugin_path;
  return saved;
}

}  // namespace

SavedFailure SavedFailure::read(const std::string& folder) {
  const std::string path = (fs::path(folder) / "case.json").string();
  return from_json(read_json_file(path), path);
}

void write_saved_failure(const RunHeader& header, const json& hello, const Judged& judged) {
  const fs::path folder = fs::path(header.folder) / "repro" / file_name_of(judged.id);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw OutputError(folder.string() + ": cannot be made: " + error.message());
  json described = to_json(judged.result);
  char seed[32];
  std::snprintf(seed, sizeof(seed), "0x%llx", static_cast<unsigned long long>(header.seed));
  described["case"] = judged.id;
  described["seed"] = seed;
  described["repro"] = repro_line(header, judged);
  described["is_confirmed"] = judged.is_confirmed;
  described["seen"] = to_json(seen_by(judged));
  described["plugin_sha256"] = hello.is_object() ? hello.value("sha256", "") : "";
  described["plugin_path"] = text_of_bytes(library_path(header, hello));
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
      if (fs::exists(entry.path() / "case.json", error)) found.push_back(entry.path().string());
    }
    if (!found.empty()) break;
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace bp::conformance
