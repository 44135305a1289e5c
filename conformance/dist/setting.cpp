#include "conformance/dist/setting.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backplane/host.h"
#include "conformance/dist/holdings.hpp"

namespace bp::conformance::dist {

void Setting::add(const std::string& group, const std::string& name, Outcome outcome,
                  const std::string& text, std::vector<std::string> notes) const {
  report.add({table, ranks, section, group, name, outcome, text, std::move(notes)});
}

void Setting::show(const std::string& what, size_t done, size_t total) const {
  if (!observer.progress) return;
  observer.progress(table + ", " + std::to_string(ranks) + " ranks: " + what, done, total,
                    report.total().failed);
}

std::vector<RankTask> Setting::tasks(Job job, const std::string& folder) const {
  std::vector<RankTask> tasks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    RankTask& task = tasks.emplace_back();
    task.setup = options.setup;
    task.job = job;
    task.table = table;
    task.group_options = options.group_options;
    task.rank = rank;
    task.world_size = ranks;
    task.folder = folder;
    task.timeout_seconds = options.timeout_seconds;
    task.grace_seconds = options.grace_seconds;
    task.load_seconds = options.load_seconds;
    task.seed = options.seed;
    task.tier = options.tier;
    task.sizes = options.sizes;
  }
  return tasks;
}

double silence_seconds(double timeout_seconds, double grace_seconds) {
  // A rank waits for others at most twice as long as a call may take.
  return 3 * (timeout_seconds + grace_seconds) + 5;
}

StoreFolder::StoreFolder() {
  path_ = (std::filesystem::temp_directory_path() / "bp-dist-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), "no folder " + path_);
  }
}

StoreFolder::~StoreFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Creation::take(uint32_t rank, const nlohmann::json& line) {
  statuses_[rank] = line.value("status", int{BP_INTERNAL});
  texts_[rank] = line.value("text", "");
  is_told_[rank] = true;
}

bool Creation::has_failed() const {
  return std::ranges::any_of(statuses_, [](bp_status status) { return status != BP_OK; });
}

void Creation::judge(const Setting& setting) const {
  const auto all_are = [&](std::initializer_list<bp_status> allowed) {
    return std::ranges::all_of(statuses_, [&](bp_status status) {
      return std::ranges::find(allowed, status) != allowed.end();
    });
  };
  const std::string ranks = std::to_string(setting.ranks) + " ranks";
  if (setting.ranks > 1 && all_are({BP_UNSUPPORTED})) {
    return setting.add(
        "create", "create", Outcome::kSkip,
        "the table makes no groups of " + ranks + " in as many processes: " + texts_[0]);
  }
  const bool shares_devices = setting.ranks > setting.device_count;
  const bool is_refused = std::ranges::all_of(
      statuses_, [](bp_status status) { return status != BP_OK && status != BP_TIMEOUT; });
  // As with ranks of one process: nothing promises that ranks may share a device.
  if (shares_devices && is_refused) {
    return setting.add("create", "create", Outcome::kSkip,
                       ranks + " on " + std::to_string(setting.device_count) +
                           " devices are refused: " + texts_[0]);
  }
  std::string text;
  for (uint32_t rank = 0; rank < statuses_.size(); ++rank) {
    const std::string says = !is_told_[rank]            ? "does not return"
                             : statuses_[rank] == BP_OK ? "makes a group"
                                                        : texts_[rank];
    text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) + ": " + says;
  }
  setting.add("create", "create", Outcome::kFail, text);
}

SharedMemory::SharedMemory() : before_(shared_memory_files()) {}

void SharedMemory::take(const nlohmann::json& line) {
  for (const nlohmann::json& name : line.value("shared", nlohmann::json::array())) {
    if (name.is_string()) used_.insert(name.get<std::string>());
  }
}

std::vector<std::string> SharedMemory::left() const {
  std::vector<std::string> left;
  const std::set<std::string> after = shared_memory_files();
  for (const std::string& name : used_) {
    if (after.contains(name) && !before_.contains(name)) left.push_back("/dev/shm/" + name);
  }
  return left;
}

}  // namespace bp::conformance::dist
