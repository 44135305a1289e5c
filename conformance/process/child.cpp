#include "conformance/process/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "conformance/json_file.hpp"
#include "conformance/process/process_end.hpp"

extern char** environ;

namespace bp::conformance {
namespace {

using nlohmann::json;

// The report has its own descriptor, because the backend may use standard output.
constexpr int kReportFd = 232;
constexpr int kGivenFd = 233;
constexpr int kChannelFd = 234;

json to_json(const ChildTask& task) {
  json options = json::array();
  for (const auto& [key, value] : task.options) {
    options.push_back({text_of_bytes(key), text_of_bytes(value)});
  }
  return {{"routine", task.routine},
          {"plugin", text_of_bytes(task.plugin)},
          {"options", std::move(options)},
          {"device", task.device},
          {"seed", task.seed},
          {"argument", text_of_bytes(task.argument)},
          {"descriptor", task.descriptor < 0 ? -1 : kGivenFd},
          {"channel", task.channel < 0 ? -1 : kChannelFd}};
}

ChildReport failure(std::string message) {
  return {ChildReport::Kind::kFailed, std::move(message), "child", ""};
}

// Reads until the end of the pipe. Returns false if the time is over before.
bool read_all(int fd, int timeout_s, std::string& out_text) {
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s);
  std::array<char, 4096> bytes;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd source{fd, POLLIN, 0};
    if (poll(&source, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t size = ::read(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    out_text.append(bytes.data(), static_cast<size_t>(size));
  }
}

// Starts the child, with one end of a pipe as its kReportFd. Returns the other end, or -1.
int start(const ChildTask& task, pid_t& out_pid) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kReportFd);
  if (task.descriptor >= 0) posix_spawn_file_actions_adddup2(&actions, task.descriptor, kGivenFd);
  if (task.channel >= 0) posix_spawn_file_actions_adddup2(&actions, task.channel, kChannelFd);
  std::string name = "bp-conformance", verb = "--child", text = json_text(to_json(task));
  const std::array<char*, 4> arguments = {name.data(), verb.data(), text.data(), nullptr};
  const int error =
      posix_spawn(&out_pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) return ends[0];
  close(ends[0]);
  return -1;
}

ChildReport parsed_report(const std::string& text, const std::string& how_it_ended) {
  try {
    // The backend shares the process of the child, so the report may come from the backend.
    const json parsed = parse_json(text, "the report of the child");
    const JsonObject told(parsed, "the report of the child");
    return {static_cast<ChildReport::Kind>(told.count("kind", 2)), told.text("message"),
            told.text("cause"), told.text("tag")};
  } catch (const std::exception& e) {
    return failure(std::string(e.what()) + "; " + how_it_ended);
  }
}

// A report counts only if its process then ended well: a backend can crash when it is unloaded.
ChildReport report_of(const std::string& text, const ProcessEnd& end) {
  if (text.empty()) return failure("the child made no report: " + end.text());
  ChildReport report = parsed_report(text, end.text());
  if (end.is_clean()) return report;
  const std::string then = ", and then " + end.text();
  switch (report.kind) {
    case ChildReport::Kind::kOk:
      return failure("the child reported success" + then);
    case ChildReport::Kind::kNotSupported:
      return failure("the child reported '" + report.message + "'" + then);
    case ChildReport::Kind::kFailed:
      break;
  }
  return report;
}

ChildReport run_routine(const ChildTask& task, const std::vector<ChildRoutine>& routines) {
  for (const ChildRoutine& routine : routines) {
    if (routine.name != task.routine) continue;
    try {
      routine.run(task);
      return {};
    } catch (const ChildEnd& end) {
      return end.report;
    } catch (const std::exception& e) {
      return failure(std::string("ended by an exception: ") + e.what());
    }
  }
  return failure("there is no routine '" + task.routine + "'");
}

}  // namespace

std::vector<bp_option> ChildTask::option_list() const {
  std::vector<bp_option> list;
  for (const auto& [key, value] : options) list.push_back({key.c_str(), value.c_str()});
  return list;
}

void child_fails(std::string message, std::string tag, std::string cause) {
  throw ChildEnd{
      {ChildReport::Kind::kFailed, std::move(message), std::move(cause), std::move(tag)}};
}

void child_not_supported(std::string reason) {
  throw ChildEnd{{ChildReport::Kind::kNotSupported, std::move(reason), "", ""}};
}

ChildReport call_child(const ChildTask& task, int timeout_s) {
  pid_t pid = -1;
  const int fd = start(task, pid);
  if (fd < 0) return failure("a child could not be started");
  std::string text;
  const bool is_complete = read_all(fd, timeout_s, text);
  close(fd);
  if (!is_complete) kill(pid, SIGKILL);
  ProcessEnd end;
  while (waitpid(pid, &end.wait_status, 0) < 0 && errno == EINTR) continue;
  if (!is_complete) {
    return failure("the child did not end within " + std::to_string(timeout_s) + " s");
  }
  return report_of(text, end);
}

int run_child(const std::string& task_json, const std::vector<ChildRoutine>& routines) {
  const json parsed = json::parse(task_json, nullptr, false);
  if (!parsed.is_object() || fcntl(kReportFd, F_GETFD) < 0) {
    std::fputs("bp-conformance: --child is for workers only\n", stderr);
    return 2;
  }
  fcntl(kReportFd, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ChildTask task;
  parsed.at("routine").get_to(task.routine);
  task.plugin = bytes_of_text(parsed.at("plugin").get<std::string>());
  for (const json& pair : parsed.at("options")) {
    task.options.emplace_back(bytes_of_text(pair.at(0).get<std::string>()),
                              bytes_of_text(pair.at(1).get<std::string>()));
  }
  parsed.at("device").get_to(task.device);
  parsed.at("seed").get_to(task.seed);
  task.argument = bytes_of_text(parsed.at("argument").get<std::string>());
  parsed.at("descriptor").get_to(task.descriptor);
  parsed.at("channel").get_to(task.channel);
  const ChildReport report = run_routine(task, routines);
  const std::string text = json_text({{"kind", static_cast<int>(report.kind)},
                                      {"message", report.message},
                                      {"cause", report.cause},
                                      {"tag", report.tag}});
  return ::write(kReportFd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

}  // namespace bp::conformance
