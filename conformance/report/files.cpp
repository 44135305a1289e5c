#include "conformance/report/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "conformance/report/documents.hpp"
#include "conformance/report/saved_failure.hpp"
#include "conformance/runner/protocol.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kReproFolders = 200;

std::string dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Text of XML 1.0: control characters cannot be written at all, and become '?'.
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

void write_testcase(std::ostream& out, const Judged& judged) {
  const std::string group = judged.which == nullptr ? "process" : judged.which->group;
  char time[32];
  std::snprintf(time, sizeof(time), "%.6f", judged.attempt.wall_ms / 1e3);
  out << "    <testcase name=\"" << xml(judged.id) << "\" classname=\"" << xml(group)
      << "\" time=\"" << time << "\"";
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

template <typename Map>
json counts_json(const Map& counts) {
  json object = json::object();
  for (const auto& [name, count] : counts) {
    object[name] = {{"right", count.right}, {"total", count.total}};
  }
  return object;
}

}  // namespace

std::string make_result_folder(std::string folder) {
  std::error_code error;
  if (folder.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char name[64];
    std::strftime(name, sizeof(name), "bp-results/%Y-%m-%d_%H-%M-%S", &local);
    folder = name;
    for (int i = 2; fs::exists(folder, error); ++i) folder = name + ("-" + std::to_string(i));
  }
  fs::create_directories(folder, error);
  if (error) throw UsageError("--out " + folder + ": " + error.message());
  for (const char* name : {"results.jsonl", "summary.json", "info.json", "junit.xml", "report.html",
                           "report.md", "repro"}) {
    fs::remove_all(fs::path(folder) / name, error);
    if (error) throw UsageError("--out " + folder + ": " + name + ": " + error.message());
  }
  return folder;
}

void continue_result_folder(const std::string& folder, const StoredRun& stored,
                            const RunHeader& header, const json& hello) {
  const std::string flag = "--resume " + folder + ": ";
  const json& info = stored.info();
  if (!info.is_object() || !info.contains("run")) {
    throw UsageError(flag + "has no info.json of a run; start it anew");
  }
  if (info.value("sha256", "") != hello.value("sha256", "")) {
    throw UsageError(flag + "the plugin has changed since; start the run anew");
  }
  const RunHeader before = run_header_from_json(info.at("run"));
  if (before.seed != header.seed || before.selection_sha256 != header.selection_sha256 ||
      before.repro_flags != header.repro_flags) {
    std::string words;
    for (const std::string& word : before.command_line) words += " " + word;
    throw UsageError(flag + "was another run; repeat its flags: bp-conformance" + words);
  }
  std::error_code error;
  fs::resize_file(fs::path(folder) / "results.jsonl", stored.whole_bytes(), error);
  if (error) throw UsageError(flag + "results.jsonl: " + error.message());
}

void write_info(const RunHeader& header, const json& hello) {
  json info = hello;
  info["run"] = to_json(header);
  write_file(fs::path(header.folder) / "info.json", dump(info, 2) + "\n");
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
    : seed_(seed), cases_(cases), synced_(std::chrono::steady_clock::now()) {
  if (path.empty()) return;
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw UsageError(path + ": cannot be written");
}

ResultLog::~ResultLog() {
  if (fd_ < 0) return;
  fsync(fd_);
  close(fd_);
}

void ResultLog::write(const json& line, bool at_once) {
  if (fd_ < 0) return;
  if (!write_all(fd_, dump(line) + "\n")) throw std::runtime_error("results.jsonl: write failed");
  const auto now = std::chrono::steady_clock::now();
  if (!at_once && now - synced_ < std::chrono::seconds(1)) return;
  fdatasync(fd_);
  synced_ = now;
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
    out << (count == Count::kFailed ? "not ok " : "ok ") << ++number << " - " << judged.id;
    if (count == Count::kSkipped) {
      out << " # SKIP " << outcome_name(judged.result.outcome) << ": " << message;
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
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw UsageError(path + ": cannot be written");
}

void write_result_files(const RunHeader& header, const RunReport& report, const Summary& summary) {
  const fs::path folder = header.folder;
  write_file(folder / "summary.json", dump(summary_json(header, report, summary), 2) + "\n");
  write_file(folder / "junit.xml", junit_xml(report, summary));
  write_file(folder / "report.html", html_page(header, report, summary));
  write_file(folder / "report.md", markdown_page(header, report, summary));
  size_t written = 0;
  for (const FailureGroup& group : summary.failures) {
    for (const size_t member : group.members) {
      if (written++ >= kReproFolders) return;
      write_saved_failure(header, report.hello, summary.judged[member]);
    }
  }
}

}  // namespace bp::conformance
