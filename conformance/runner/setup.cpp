#include "conformance/runner/setup.hpp"

namespace bp::conformance {

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
          {"replay", setup.replay.path},
          {"seeds_weights", setup.replay.seeds_weights},
          {"is_partial", setup.replay.is_partial},
          {"replay_seed", setup.replay.seed},
          {"parent", setup.parent}};
}

WorkerSetup worker_setup_from_json(const nlohmann::json& json) {
  WorkerSetup setup;
  json.at("plugin").get_to(setup.plugin);
  json.at("device").get_to(setup.device);
  json.at("options").get_to(setup.options);
  // A failure that an older suite saved has none.
  setup.layers = json.value("layers", "");
  setup.layer_options = json.value("layer_options", "");
  json.at("canary_bytes").get_to(setup.case_options.canary_bytes);
  json.at("poison").get_to(setup.case_options.poison);
  json.at("cache_bytes").get_to(setup.perf.cache_bytes);
  json.at("min_seconds").get_to(setup.perf.min_seconds);
  setup.replay = {json.value("replay", ""), json.value("seeds_weights", false),
                  json.value("is_partial", false), json.value("replay_seed", uint64_t{0})};
  json.at("parent").get_to(setup.parent);
  return setup;
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

Result result_from_json(const nlohmann::json& json) {
  Result result;
  const std::string status = json.at("status").get<std::string>();
  if (!outcome_from_name(status, result.outcome)) {
    throw std::runtime_error("unknown status \"" + status + "\"");
  }
  const auto read = [&](const char* key, auto& member) {
    if (json.contains(key)) json.at(key).get_to(member);
  };
  read("message", result.message);
  read("cause", result.cause);
  read("tag", result.tag);
  read("notes", result.notes);
  read("details", result.details);
  if (json.contains("metrics")) {
    for (const auto& [name, value] : json.at("metrics").items()) {
      // A number that is not finite is null in JSON.
      result.metrics[name] = value.is_number() ? value.get<double>() : 0.0 / 0.0;
    }
  }
  return result;
}

}  // namespace bp::conformance
