#include "conformance/runner/setup.hpp"

#include "conformance/json_file.hpp"
#include "conformance/runner/protocol.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kMostPatienceMs = 3'600'000;

// Cleans a text of a result, because it may hold words of a backend.
std::string line_of(const std::string& text) { return clean_text(text, LineBreaks::kEscape); }
std::string lines_of(const std::string& text) {
  return clean_text(text, LineBreaks::kKeep, kMaxRecordBytes);
}

}  // namespace

nlohmann::json json_of_named_values(const NamedValues& options) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [key, value] : options) {
    json.push_back({text_of_bytes(key), text_of_bytes(value)});
  }
  return json;
}

NamedValues named_values_from_json(const JsonObject& told, const char* member) {
  NamedValues options;
  for (const nlohmann::json& pair : told.list(member)) {
    const bool is_pair =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!is_pair) told.refuse(member, "a list with " + kind_text(pair), "a list of text pairs");
    options.emplace_back(bytes_of_text(pair[0].get<std::string>()),
                         bytes_of_text(pair[1].get<std::string>()));
  }
  return options;
}

nlohmann::json to_json(const WorkerSetup& setup) {
  return {{"plugin", text_of_bytes(setup.plugin)},
          {"device", text_of_bytes(setup.device)},
          {"options", json_of_named_values(setup.options)},
          {"layers", text_of_bytes(setup.layers)},
          {"layer_options", text_of_bytes(setup.layer_options)},
          {"transport", text_of_bytes(setup.transport)},
          {"canary_bytes", setup.case_options.canary_bytes},
          {"poison", setup.case_options.poison},
          {"launch_patience_ms", setup.case_options.launch_patience_ms},
          {"allows_decompositions", setup.allows_decompositions},
          {"tells_device_memory", setup.tells_device_memory},
          {"cache_bytes", setup.perf.cache_bytes},
          {"min_seconds", setup.perf.min_seconds},
          {"replay", text_of_bytes(setup.recording.path)},
          {"seeds_weights", setup.recording.seeds_weights},
          {"is_partial", setup.recording.is_partial},
          {"replay_seed", setup.recording.seed},
          {"parent", setup.parent}};
}

WorkerSetup worker_setup_from_json(const nlohmann::json& json, const std::string& name) {
  const JsonObject told(json, name);
  WorkerSetup setup;
  setup.plugin = bytes_of_text(told.text("plugin"));
  setup.device = bytes_of_text(told.text("device"));
  setup.options = named_values_from_json(told, "options");
  // A failure that an older suite saved has none.
  setup.layers = bytes_of_text(told.text("layers", ""));
  setup.layer_options = bytes_of_text(told.text("layer_options", ""));
  setup.transport = bytes_of_text(told.text("transport", ""));
  setup.case_options.canary_bytes = told.count("canary_bytes", 1 << 20);
  setup.case_options.poison = told.text("poison");
  setup.case_options.launch_patience_ms =
      told.count("launch_patience_ms", kMostPatienceMs, CaseOptions().launch_patience_ms);
  setup.allows_decompositions = told.flag("allows_decompositions", false);
  setup.tells_device_memory = told.flag("tells_device_memory", false);
  setup.perf.cache_bytes = told.count("cache_bytes", uint64_t{1} << 40);
  setup.perf.min_seconds = told.number("min_seconds", 0, kMostSeconds);
  setup.recording = {bytes_of_text(told.text("replay", "")), told.flag("seeds_weights", false),
                     told.flag("is_partial", false), told.count("replay_seed", UINT64_MAX, 0)};
  setup.parent = static_cast<int>(told.count("parent", INT32_MAX, 0));
  return setup;
}

nlohmann::json to_json(const DispatchCounts& counts) {
  return {{"native", counts.native},     {"decomposed", counts.decomposed},
          {"host", counts.host},         {"copied_scalars", counts.copied_scalars},
          {"compiled", counts.compiled}, {"realigned", counts.realigned},
          {"laid_out", counts.laid_out}};
}

DispatchCounts dispatch_counts_from_json(const nlohmann::json& json, const std::string& name) {
  constexpr uint64_t kMost = uint64_t{1} << 48;  // The limit is so small that a sum of many counts
                                                 // does not overflow.
  const JsonObject told(json, name);
  return {told.count("native", kMost),      told.count("decomposed", kMost),
          told.count("host", kMost),        told.count("copied_scalars", kMost),
          told.count("compiled", kMost, 0), told.count("realigned", kMost, 0),
          told.count("laid_out", kMost, 0)};
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
