// The process of a rank: it loads the backend, does its job, and says what it finds.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/dist/jobs.hpp"
#include "conformance/dist/launch_folder.hpp"
#include "conformance/json_file.hpp"
#include "conformance/runner/protocol.hpp"

namespace bp::conformance::dist {
namespace {

void look(const Backend& backend, Speaker& speaker) {
  nlohmann::json devices = nlohmann::json::array();
  for (const bp_target* const target : backend.targets()) devices.push_back(target->name);
  speaker.say("hello", {{"devices", devices}, {"tables", backend.table_names()}});
}

// Waits until all ranks have loaded the backend, which takes some of them longer than a timeout of
// create().
void wait_until_loaded(const RankTask& task, const FolderStore& store) {
  const auto key_of = [](uint32_t rank) { return "suite/loaded/" + std::to_string(rank); };
  store.put(key_of(task.rank), "");
  std::string ignored;
  for (uint32_t rank = 0; rank < task.world_size; ++rank) {
    // A little less than the supervisor's patience, so that the text says which rank is missing.
    if (store.get(key_of(rank), nanoseconds_of(task.load_seconds * 0.9), ignored)) continue;
    throw RankError("rank " + std::to_string(rank) + " has not loaded the backend");
  }
}

void do_job(const RankTask& task, Speaker& speaker) {
  FolderStore store(task.folder);
  const Backend backend(task.setup);
  wait_until_loaded(task, store);
  look(backend, speaker);
  const RankJob job{task, backend, store, speaker};
  switch (task.job) {
    case Job::kLook:
      return;
    case Job::kValues:
      return run_values(job);
    case Job::kFault:
      return run_fault(job);
    case Job::kBandwidth:
      return run_bandwidth(job);
  }
}

}  // namespace

void Speaker::say(const char* what, nlohmann::json line) {
  line["say"] = what;
  const std::lock_guard lock(mutex_);
  if (!write_all(descriptor_, json_text(line) + "\n")) _exit(1);
}

int run_rank(const std::string& task_or_folder) {
  std::string task_json = task_or_folder;
  try {
    if (task_json.starts_with("/")) task_json = take_rank(task_or_folder);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bp-conformance: %s\n", e.what());
    return 2;
  }
  const nlohmann::json parsed = nlohmann::json::parse(task_json, nullptr, false);
  if (!parsed.is_object() || fcntl(kRankFd, F_GETFD) < 0) {
    std::fputs("bp-conformance: --rank is for dist only\n", stderr);
    return 2;
  }
  fcntl(kRankFd, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  Speaker speaker(kRankFd);
  try {
    do_job(rank_task_from_json(parsed), speaker);
    // The backend has been unloaded by now.
    speaker.say("done", nlohmann::json::object());
    return 0;
  } catch (const std::exception& e) {
    speaker.say("stop", {{"text", e.what()}});
    return 1;
  }
}

}  // namespace bp::conformance::dist
