// What the supervisor of `dist` tells the process of a rank, and what the rank says.
//
//   supervisor --(argument of --rank: RankTask)--> rank --(kRankFd: a JSON object in each line)-->
//
// Each line has the member "say": "hello" when the backend is loaded, "begin" and "end" around a
// check, "step" for a call in a fault, "size" for a size that was timed, "left" for what was left
// behind, "done" before the process ends, and "stop" if the rank cannot go on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/runner/setup.hpp"

namespace bp::conformance::dist {

// The descriptor on which a rank speaks. Its number is high, as those of workers are.
constexpr int kRankFd = 236;

enum class Job { kLook, kValues, kFault, kBandwidth };

// The sizes that are timed, in bytes.
struct Sizes {
  uint64_t min_bytes = 1 << 10, max_bytes = 256 << 20, factor = 4;
};

struct RankTask {
  WorkerSetup setup;
  Job job = Job::kLook;
  std::string table;  // The name of the table of process groups. "": the first.
  NamedValues group_options;
  uint32_t rank = 0, world_size = 1;
  std::string folder;  // The folder of the store.
  double timeout_seconds = 10, grace_seconds = 5, load_seconds = 120;
  uint64_t seed = 0;
  Tier tier = Tier::kQuick;
  uint64_t first = 0;              // The check with which the values begin.
  std::vector<std::string> skips;  // The families of checks that are skipped.
  std::string fault;               // The name of the fault.
  uint32_t victim = 0;             // The rank that has the fault.
  Sizes sizes;
};

nlohmann::json to_json(const RankTask& task);
RankTask rank_task_from_json(const nlohmann::json& json);

inline uint64_t nanoseconds_of(double seconds) { return static_cast<uint64_t>(seconds * 1e9); }

}  // namespace bp::conformance::dist
