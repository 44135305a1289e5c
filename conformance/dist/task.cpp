#include "conformance/dist/task.hpp"

#include "conformance/json_file.hpp"

namespace bp::conformance::dist {

nlohmann::json to_json(const RankTask& task) {
  return {{"setup", to_json(task.setup)},
          {"job", static_cast<int>(task.job)},
          {"table", task.table},
          {"group_options", json_of_named_values(task.group_options)},
          {"rank", task.rank},
          {"world_size", task.world_size},
          {"folder", text_of_bytes(task.folder)},
          {"timeout_seconds", task.timeout_seconds},
          {"grace_seconds", task.grace_seconds},
          {"load_seconds", task.load_seconds},
          {"seed", task.seed},
          {"tier", static_cast<int>(task.tier)},
          {"first", task.first},
          {"skips", task.skips},
          {"fault", task.fault},
          {"victim", task.victim},
          {"min_bytes", task.sizes.min_bytes},
          {"max_bytes", task.sizes.max_bytes},
          {"factor", task.sizes.factor}};
}

RankTask rank_task_from_json(const nlohmann::json& json) {
  const char* const name = "the task of the rank";
  const JsonObject told(json, name);
  RankTask task;
  task.setup = worker_setup_from_json(told.member("setup"), name);
  task.job = static_cast<Job>(told.count("job", static_cast<uint64_t>(Job::kBandwidth)));
  task.table = told.text("table");
  task.group_options = named_values_from_json(told, "group_options");
  task.rank = static_cast<uint32_t>(told.count("rank", UINT32_MAX));
  task.world_size = static_cast<uint32_t>(told.count("world_size", UINT32_MAX));
  task.folder = bytes_of_text(told.text("folder"));
  task.timeout_seconds = told.number("timeout_seconds", 0, kMostSeconds);
  task.grace_seconds = told.number("grace_seconds", 0, kMostSeconds);
  task.load_seconds = told.number("load_seconds", 0, kMostSeconds);
  task.seed = told.count("seed", UINT64_MAX);
  task.tier = static_cast<Tier>(told.count("tier", static_cast<uint64_t>(Tier::kFull)));
  task.first = told.count("first", UINT64_MAX);
  task.skips = told.texts("skips");
  task.fault = told.text("fault");
  task.victim = static_cast<uint32_t>(told.count("victim", UINT32_MAX));
  task.sizes = {told.count("min_bytes", UINT64_MAX), told.count("max_bytes", UINT64_MAX),
                told.count("factor", UINT64_MAX)};
  return task;
}

}  // namespace bp::conformance::dist
