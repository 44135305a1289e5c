// The process of a rank: it loads the backend, does its job, and says what it finds.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/dist/jobs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/runner/protocol.hpp"

namespace bp::conformance::dist {
namespace {

void look(const Backend& backend, Speaker& speaker) {
  nlohmann::json devices = nlohmann::json::array();
  for (const bp_target* const target : backend.targets()) devices.push_back(target->name);
  speaker.say("hello", {{"devices", devices}, {"tables", backend.table_names()}});
}

void do_job(const RankTask& task, Speaker& speaker) {
  FolderStore store(task.folder);
  const Backend backend(task.setup);
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

int run_rank(const std::string& task_json) {
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
