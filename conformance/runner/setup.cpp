#include "conformance/runner/setup.hpp"

#include "conformance/json_file.hpp"
#include "conformance/runner/protocol.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

// What a result says may hold the words of a backend.
std::string line_of(const std::string& text) { return clean_text(text, LineBreaks::kEscape); }
std::string lines_of(const std::string& text) {
  return clean_text(text, LineBreaks::kKeep, kMaxRecordBytes);
}

}  // namespace

nlohmann::json to_json(const WorkerSetup& setup) {
  return {{"plugin", setup.plugin},
          {"device", setup.device},
          {"options", setup.options},
          {"layers", setup.layers},
          {"layer_options", setup.layer_options},
          {"canary_bytes", setup.case_options.canary_bytes},
          {"poison", setup.case_options.poison},
          {"cache_bytes", setup.perf.cache_bytes},
          {"min_seconds", setup.perf.min_seconds},
          {"replay", setup.recording.path},
          {"seeds_weights", setup.recording.seeds_weights},
          {"is_partial", setup.recording.is_partial},
          {"replay_seed", setup.recording.seed},
          {"parent", setup.parent}};
}

WorkerSetup worker_setup_from_json(const nlohmann::json& json, const std::string& name) {
  const JsonObject told(json, name);
  WorkerSetup setup;
  setup.plugin = told.text("plugin");
  setup.device = told.text("device");
  for (const nlohmann::json& pair : told.list("options")) {
    const bool is_pair =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!is_pair) told.refuse("options", "a list with " + kind_text(pair), "a list of text pairs");
    setup.options.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  // A failure that an older suite saved has none.
  setup.layers = told.text("layers", "");
  setup.layer_options = told.text("layer_options", "");
  setup.case_options.canary_bytes = told.count("canary_bytes", 1 << 20);
  setup.case_options.poison = told.text("poison");
  setup.perf.cache_bytes = told.count("cache_bytes", uint64_t{1} << 40);
  setup.perf.min_seconds = told.number("min_seconds", 0, kMostSeconds);
  setup.recording = {told.text("replay", ""), told.flag("seeds_weights", false),
                     told.flag("is_partial", false), told.count("replay_seed", UINT64_MAX, 0)};
  setup.parent = static_cast<int>(told.count("parent", INT32_MAX, 0));
  return setup;
}

nlohmann::json to_json(const DispatchCounts& counts) {
  return {{"native", counts.native},
          {"decomposed", counts.decomposed},
          {"host", counts.host},
          {"copied_scalars", counts.copied_scalars}};
}

DispatchCounts dispatch_counts_from_json(const nlohmann::json& json, const std::string& name) {
  constexpr uint64_t kMost = uint64_t{1} << 48;  // The sum of many still fits.
  const JsonObject told(json, name);
  return {told.count("native", kMost), told.count("decomposed", kMost), told.count("host", kMost),
          told.count("copied_scalars", kMost)};
}

nlohmann::json to_json(const Result& result) {
  nlohmann::json json = {{"status", outcome_name(result.outcome)}};
  if (!result.message.empty()) json["message"] = result.message;
  if (!result.cause.empty()) json["cause"] = result.cause;
  if (!result.tag.empty()) json["tag"] = result.tag;
  if (!result.notes.empty()) json["notes"] = result.notes;
  if (!result.metrics.empty()) json["metrics"] = result.metrics;
  if (!result.details.empty()) json["details"] = result.details;
  return json;
}

Result result_from_json(const nlohmann::json& json, const std::string& name) {
  const JsonObject told(json, name);
  Result result;
  const std::string status = told.text("status");
  if (!outcome_from_name(status, result.outcome)) {
    told.refuse("status", "\"" + status.substr(0, 40) + "\"",
                "the name of a status, such as Pass,");
  }
  result.message = lines_of(told.text("message", ""));
  result.cause = line_of(told.text("cause", ""));
  result.tag = line_of(told.text("tag", ""));
  for (const std::string& note : told.texts("notes")) result.notes.push_back(lines_of(note));
  if (told.has("details")) {
    const JsonObject details = told.object("details");
    for (const auto& [key, value] : told.member("details").items()) {
      result.details[line_of(key)] = lines_of(details.text(key.c_str()));
    }
  }
  if (told.has("metrics")) {
    static_cast<void>(told.object("metrics"));
    for (const auto& [key, value] : told.member("metrics").items()) {
      // A number that is not finite is null in JSON.
      result.metrics[line_of(key)] = value.is_number() ? value.get<double>() : 0.0 / 0.0;
    }
  }
  return result;
}

}  // namespace bp::conformance
