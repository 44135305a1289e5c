#include "conformance/report/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "conformance/json_file.hpp"
#include "conformance/report/documents.hpp"
#include "conformance/report/environment.hpp"
#include "conformance/report/saved_failure.hpp"
#include "conformance/runner/protocol.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/files/sha256.hpp"
#include "registry/files/whole_file.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kReproFolders = 200;

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Returns text of XML 1.0. It has no way to write control characters, so they become '?'.
std::string xml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte >= 0x7f) {
      escaped += '?';
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Returns the text as part of a line of TAP, where # begins a directive.
std::string tap(const std::string& text) {
  std::string escaped;
  for (const char c : clean_text(text, LineBreaks::kEscape)) {
    if (c == '#' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void write_testcase(std::ostream& out, const Judged& judged) {
  const std::string group = judged.which == nullptr ? "process" : judged.which->group;
  out << "    <testcase name=\"" << xml(judged.id) << "\" classname=\"" << xml(group)
      << "\" time=\"" << fixed_text(judged.attempt.wall_ms / 1e3, 6) << "\"";
  const Result& result = judged.result;
  const Count count = count_of(result.outcome);
  if (count == Count::kPassed) {
    out << "/>\n";
    return;
  }
  out << ">\n";
  if (count == Count::kFailed) {
    out << "      <failure type=\"" << outcome_name(result.outcome) << "\" message=\""
        << xml(result.message) << "\">" << xml(result.tag + " " + result.cause);
    for (const std::string& note : result.notes) out << "\n" << xml(note);
    out << "</failure>\n";
    if (!judged.attempt.output.empty()) {
      out << "      <system-out>" << xml(judged.attempt.output) << "</system-out>\n";
    }
  } else {
    out << "      <skipped message=\"" << outcome_name(result.outcome) << ": "
        << xml(result.message) << "\"/>\n";
  }
  out << "    </testcase>\n";
}

json failure_json(const RunHeader& header, const Summary& summary, const FailureGroup& group) {
  json ids = json::array();
  for (const size_t member : group.members) ids.push_back(summary.judged[member].id);
  const Judged& first = summary.judged[group.members.front()];
  return {{"tag", group.tag},
          {"label", group.label},
          {"status", outcome_name(group.outcome)},
          {"cause", group.cause},
          {"message", first.result.message},
          {"repro", repro_line(header, first)},
          {"cases", std::move(ids)}};
}

std::string errno_text() { return std::error_code(errno, std::generic_category()).message(); }

void write_in_place(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool is_written = fd >= 0 && write_all(fd, text);
  const std::string reason = errno_text();
  if (fd >= 0) close(fd);
  if (!is_written) throw OutputError(path + ": cannot be written: " + reason);
}

// Returns "process 1234 (bp-conformance)" from the kernel's list of locks.
std::string holder_of_lock(int fd) {
  struct stat status = {};
  std::ifstream locks("/proc/locks");
  if (fstat(fd, &status) != 0) return "another process";
  for (std::string line; std::getline(locks, line);) {
    char kind[16] = "";
    long pid = 0;
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    const int found = std::sscanf(line.c_str(), "%*d: %15s %*s %*s %ld %x:%x:%lu", kind, &pid,
                                  &device_major, &device_minor, &inode);
    if (found != 5 || std::string_view(kind) != "FLOCK" || pid <= 0 || inode != status.st_ino ||
        device_major != major(status.st_dev) || device_minor != minor(status.st_dev)) {
      continue;
    }
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm") >> std::ws, name);
    return "process " + std::to_string(pid) +
           (name.empty() ? "" : " (" + clean_name(name.c_str()) + ")");
  }
  return "another process";
}

// Makes a folder that no other run has, not even a run that began in the same second.
std::string make_folder_of_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char name[64];
  std::strftime(name, sizeof(name), "bp-results/%Y-%m-%d_%H-%M-%S", &local);
  std::error_code error;
  fs::create_directories("bp-results", error);
  std::string folder = name;
  for (int i = 2; !error && !fs::create_directory(folder, error); ++i) {
    folder = name + ("-" + std::to_string(i));
  }
  if (error) throw UsageError("--out " + folder + ": " + error.message());
  return folder;
}

template <typename Map>
json counts_json(const Map& counts) {
  json object = json::object();
  for (const auto& [name, count] : counts) {
    object[name] = {{"right", count.right}, {"total", count.total}};
  }
  return object;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& flag) {
  fd_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw UsageError(flag + ": is not a folder: " + errno_text());
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (error != EWOULDBLOCK) {
    // Some network file systems have no locks.
    std::fprintf(stderr,
                 "bp-conformance: %s cannot be locked (%s): take care that no second run writes to "
                 "it\n",
                 flag.c_str(), std::strerror(error));
    return;
  }
  const std::string holder = holder_of_lock(fd_);
  close(fd_);
  throw UsageError(flag + ": " + holder +
                   " writes to this folder; wait for its end, or give "
                   "another folder");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

ResultFolder make_result_folder(const std::string& given) {
  const std::string folder = given.empty() ? make_folder_of_now() : given;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--out " + folder + ": " + error.message());
  FolderLock lock(folder, "--out " + folder);
  for (const char* name : {"results.jsonl", "summary.json", "info.json", "junit.xml", "report.html",
                           "report.md", "repro"}) {
    fs::remove_all(fs::path(folder) / name, error);
    if (error) throw UsageError("--out " + folder + ": " + name + ": " + error.message());
  }
  return {folder, std::move(lock)};
}

void continue_result_folder(const std::string& folder, const StoredRun& stored,
                            const RunHeader& header, const json& hello) {
  const std::string flag = "--resume " + folder + ": ";
  const json& info = stored.info();
  if (!info.is_object() || !info.contains("run")) {
    throw UsageError(
        flag +
        "the folder has no info.json of a run, so there is nothing to continue; start a new run");
  }
  if (info.value("sha256", "") != hello.value("sha256", "")) {
    throw UsageError(flag + "the plugin has changed since; start the run anew");
  }
  const RunHeader before = run_header_from_json(info.at("run"), folder + "/info.json: run");
  if (before.seed != header.seed || before.selection_sha256 != header.selection_sha256 ||
      before.repro_flags != header.repro_flags) {
    std::string words;
    for (const std::string& word : before.command_line) words += " " + word;
    throw UsageError(flag + "the folder holds another run; repeat its flags: bp-conformance" +
                     words);
  }
  std::error_code error;
  fs::resize_file(fs::path(folder) / "results.jsonl", stored.whole_bytes(), error);
  if (error) throw UsageError(flag + "results.jsonl: " + error.message());
}

void write_info(const RunHeader& header, const json& hello) {
  json info = hello;
  info["run"] = to_json(header);
  info["environment"] = environment_json();
  write_file(fs::path(header.folder) / "info.json", json_text(info, 2) + "\n");
}

json attempt_json(const CaseList& cases, const Attempt& attempt, uint64_t seed) {
  json line = to_json(attempt.result);
  line["attempt"] = attempt.number;
  line["seed"] = hex(seed);
  line["wall_ms"] = attempt.wall_ms;
  line["pid"] = attempt.pid;
  if (attempt.index < cases.size()) {
    const Case& which = cases[attempt.index];
    line["case"] = which.id;
    line["tags"] = which.tags;
    line["native"] = count_of(attempt.result.outcome) == Count::kPassed;
  } else {
    line["case"] = attempt.index == kLoad ? "load" : "unload";
  }
  if (attempt.output_bytes > 0) {
    line["output"] = attempt.output;
    line["output_bytes"] = attempt.output_bytes;
  }
  return line;
}

ResultLog::ResultLog(const std::string& path, uint64_t seed, const CaseList& cases)
    : path_(path), seed_(seed), cases_(cases), synced_(std::chrono::steady_clock::now()) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw OutputError(path_ + ": cannot be written: " + errno_text());
}

ResultLog::~ResultLog() {
  if (fd_ < 0) return;
  fsync(fd_);
  close(fd_);
}

void ResultLog::write(const json& line, bool at_once) {
  if (!write_all(fd_, json_text(line) + "\n")) {
    throw OutputError(path_ + ": cannot be written: " + errno_text());
  }
  if (at_once || std::chrono::steady_clock::now() - synced_ >= std::chrono::seconds(1)) sync();
}

void ResultLog::sync() {
  // EINVAL means that the file needs no sync; a pipe is an example.
  if (fdatasync(fd_) != 0 && errno != EINVAL) {
    throw OutputError(path_ + ": cannot be brought to the disk: " + errno_text());
  }
  synced_ = std::chrono::steady_clock::now();
}

void ResultLog::finish() {
  sync();
  if (close(std::exchange(fd_, -1)) != 0) {
    throw OutputError(path_ + ": cannot be closed: " + errno_text());
  }
}

void ResultLog::add(const Attempt& attempt) {
  const Outcome outcome = attempt.result.outcome;
  write(attempt_json(cases_, attempt, seed_),
        outcome == Outcome::kCrash || outcome == Outcome::kTimeout);
}

void ResultLog::add_finals(const Summary& summary) {
  for (const Judged& judged : summary.judged) {
    const bool is_same_as_logged = judged.result.outcome == judged.attempt.result.outcome &&
                                   judged.result.outcome != Outcome::kFlake &&
                                   judged.result.cause != "order";
    if (is_same_as_logged) continue;
    json line = to_json(judged.result);
    line["case"] = judged.id;
    line["final"] = true;
    write(line, false);
  }
}

json summary_json(const RunHeader& header, const RunReport& report, const Summary& summary) {
  json outcomes = json::object(), failures = json::array();
  for (const auto& [outcome, count] : summary.outcomes) outcomes[outcome_name(outcome)] = count;
  for (const FailureGroup& group : summary.failures) {
    failures.push_back(failure_json(header, summary, group));
  }
  return {{"suite", kSuiteVersion},
          {"plugin", header.plugin},
          {"sha256", report.hello.is_object() ? report.hello.value("sha256", "") : ""},
          {"tier", tier_name(header.tier)},
          {"is_whole_tier", header.is_whole_tier},
          {"seed", hex(header.seed)},
          {"command_line", header.command_line},
          {"environment", header.environment},
          {"passed", summary.passed},
          {"failed", summary.failed},
          {"skipped", summary.skipped},
          {"statuses", std::move(outcomes)},
          {"groups", counts_json(summary.groups)},
          {"tags", counts_json(summary.tags)},
          {"failures", std::move(failures)},
          {"verdict", summary.verdict},
          {"exit_code", static_cast<int>(summary.exit_code)},
          {"is_interrupted", report.is_interrupted},
          {"wall_seconds", report.wall_seconds}};
}

std::string junit_xml(const RunReport& report, const Summary& summary) {
  std::map<std::string, std::vector<const Judged*>> suites;
  for (const Judged& judged : summary.judged) {
    suites[judged.which == nullptr ? "process" : judged.which->group].push_back(&judged);
  }
  std::ostringstream out;
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"bp-conformance\" tests=\""
      << summary.judged.size() << "\" failures=\"" << summary.failed << "\" skipped=\""
      << summary.skipped << "\" time=\"" << report.wall_seconds << "\">\n";
  for (const auto& [name, members] : suites) {
    size_t failed = 0, skipped = 0;
    for (const Judged* judged : members) {
      failed += count_of(judged->result.outcome) == Count::kFailed;
      skipped += count_of(judged->result.outcome) == Count::kSkipped;
    }
    out << "  <testsuite name=\"" << xml(name) << "\" tests=\"" << members.size()
        << "\" failures=\"" << failed << "\" skipped=\"" << skipped << "\">\n";
    for (const Judged* judged : members) write_testcase(out, *judged);
    out << "  </testsuite>\n";
  }
  out << "</testsuites>\n";
  return out.str();
}

std::string tap_text(const Summary& summary) {
  std::ostringstream out;
  out << "TAP version 14\n1.." << summary.judged.size() << "\n";
  size_t number = 0;
  for (const Judged& judged : summary.judged) {
    const Count count = count_of(judged.result.outcome);
    std::string message = judged.result.message.substr(0, judged.result.message.find('\n'));
    out << (count == Count::kFailed ? "not ok " : "ok ") << ++number << " - " << tap(judged.id);
    if (count == Count::kSkipped) {
      out << " # SKIP " << outcome_name(judged.result.outcome) << ": " << tap(message);
    }
    out << "\n";
    if (count == Count::kFailed) {
      out << "  ---\n  status: " << outcome_name(judged.result.outcome)
          << "\n  message: " << json(message).dump(-1, ' ', true, json::error_handler_t::replace)
          << "\n  ...\n";
    }
  }
  return out.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // A pipe or a device, such as /dev/stdout, is written in place and not replaced.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    write_in_place(path, text);
    return;
  }
  WholeFile file(path);
  file.write(text);
  if (const std::string problem = file.commit(); !problem.empty()) throw OutputError(problem);
}

void Outputs::attempt(const std::function<void()>& write) {
  const auto note = [this](const char* text) {
    problem_ += (problem_.empty() ? "" : "; ") + std::string(text);
  };
  try {
    write();
  } catch (const OutputError& e) {
    note(e.what());
  } catch (const UsageError& e) {
    note(e.what());
  }
}

void write_result_files(const RunHeader& header, const RunReport& report, const Summary& summary,
                        Outputs& outputs) {
  const fs::path folder = header.folder;
  const auto write = [&](const char* name, const std::string& text) {
    outputs.attempt([&] { write_file(folder / name, text); });
  };
  write("summary.json", json_text(summary_json(header, report, summary), 2) + "\n");
  write("junit.xml", junit_xml(report, summary));
  write("report.html", html_page(header, report, summary));
  write("report.md", markdown_page(header, report, summary));
  size_t written = 0;
  for (const FailureGroup& group : summary.failures) {
    for (const size_t member : group.members) {
      if (written++ >= kReproFolders || !outputs.problem().empty()) return;
      outputs.attempt([&] { write_saved_failure(header, report.hello, summary.judged[member]); });
    }
  }
}

std::string file_name_of(const std::string& id) {
  constexpr size_t kMostBytes = 180, kKeptBytes = 140, kHashDigits = 32;
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  const bool is_name = !id.empty() && id[0] != '.' && id.size() <= kMostBytes;
  if (is_name && std::ranges::all_of(id, is_plain)) return id;
  std::string name = id.substr(0, kKeptBytes);
  std::ranges::replace_if(name, std::not_fn(is_plain), '_');
  if (name.starts_with('.')) name[0] = '_';
  return name + "~" + sha256(id).substr(0, kHashDigits);
}

}  // namespace bp::conformance
