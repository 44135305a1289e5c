#include "conformance/runner/scripted_worker.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "conformance/runner/protocol.hpp"
#include "conformance/runner/setup.hpp"
#include "conformance/runner/warden.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

void send(RecordType type, const json& payload) {
  static_cast<void>(write_all(kRecordFd, encode(type, payload)));
}

// Dies without a core file, whatever the settings of the system are.
[[noreturn]] void die_of_a_signal() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  _exit(99);
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

// Return "fail" and "values" for "fail:values".
std::string head_of(const std::string& text) { return text.substr(0, text.find(':')); }
std::string rest_of(const std::string& text) {
  const size_t colon = text.find(':');
  return colon == std::string::npos ? "" : text.substr(colon + 1);
}

class ScriptedWorker {
 public:
  explicit ScriptedWorker(const WorkerSetup& setup)
      : begin_(head_of(setup.plugin)),
        begin_text_(rest_of(setup.plugin)),
        script_(setup.options.begin(), setup.options.end()) {}

  int serve() {
    greet();
    RecordReader reader;
    for (char byte = 0; ::read(kCommandFd, &byte, 1) == 1;) {
      reader.append(std::string_view(&byte, 1));
      const std::optional<Record> record = reader.next();
      if (!record) continue;
      if (record->type == RecordType::kBye) return part();
      run(record->payload);
    }
    return 1;
  }

 private:
  void greet() {
    if (begin_ == "no_hello") _exit(std::atoi(begin_text_.c_str()));
    if (begin_ == "mute") wait_for_ever();
    if (begin_ == "begin_first") send(RecordType::kBegin, {{"case", "stream.case_0"}});
    if (begin_ == "print") print(begin_text_);
    send(RecordType::kHello, begin_ == "hello" ? json::parse(begin_text_) : usual_hello());
    if (begin_ == "hello_exit") _exit(std::atoi(begin_text_.c_str()));
  }

  static json usual_hello() {
    const json target = {{"name", "acme.npu:0"},
                         {"dtypes", json::array()},
                         {"profiles", json::array()},
                         {"heaps", json::array()},
                         {"kernels", json::array()}};
    return {{"plugin", {{"name", "acme.npu"}}}, {"targets", json::array({target})}, {"target", 0}};
  }

  int part() {
    if (begin_ == "bye_crash") die_of_a_signal();
    send(RecordType::kBye, begin_ == "bye" ? json::parse(begin_text_) : json::object());
    return begin_ == "bye_exit" ? std::atoi(begin_text_.c_str()) : 0;
  }

  static void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void run(const json& request) {
    id_ = request.at("case").get<std::string>();
    attempt_ = request.at("attempt").get<int>();
    const auto found = script_.find(id_);
    const std::string step = found == script_.end() ? "" : found->second;
    act(head_of(step), rest_of(step));
    done_.insert(id_);
  }

  void act(const std::string& verb, const std::string& rest) {
    if (verb != "no_begin") send(RecordType::kBegin, {{"case", id_}});
    if (verb == "begin_twice") send(RecordType::kBegin, {{"case", id_}});
    if (verb == "raw") return static_cast<void>(write_all(kRecordFd, rest));
    if (verb == "exit") _exit(std::atoi(rest.c_str()));
    if (verb == "kill_parent") kill(getppid(), SIGKILL), wait_for_ever();
    if (verb == "stop_parent") stop_warden(), _exit(std::atoi(rest.c_str()));
    if (verb == "leave") leave_a_process();
    if (verb == "deaf") signal(SIGTERM, SIG_IGN);
    if (verb == "segfault" || verb == "hang" || verb == "deaf") {
      send(RecordType::kProgress, {{"case", id_}, {"phase", rest}});
      verb == "segfault" ? die_of_a_signal() : wait_for_ever();
    }
    if (verb == "print") print(rest);
    if (verb == "flood") print(std::string(std::stoul(rest), 'x'));
    end(result_of(verb, rest), verb);
    if (verb == "dies_late") die_of_a_signal();
  }

  // A warden that is stopped before it has closed the pipes of the worker keeps them open, so this
  // first waits until the warden has its own pipe alone.
  static void stop_warden() {
    namespace fs = std::filesystem;
    const std::string open_files = "/proc/" + std::to_string(getppid()) + "/fd";
    while (std::distance(fs::directory_iterator(open_files), fs::directory_iterator()) > 1) {
      usleep(1000);
    }
    kill(getppid(), SIGSTOP);
  }

  [[noreturn]] static void leave_a_process() {
    if (fork() == 0) {
      setsid();
      wait_for_ever();
    }
    die_of_a_signal();
  }

  // Returns whether each case of "a,b,c" ran in this process.
  bool have_run(const std::string& ids) const {
    std::istringstream list(ids);
    for (std::string id; std::getline(list, id, ',');) {
      if (!done_.contains(id)) return false;
    }
    return true;
  }

  json result_of(const std::string& verb, const std::string& rest) const {
    if (verb == "end") return json::parse(rest);
    if (verb == "lost") return {{"status", "Fail"}, {"details", {{kLostDetail, "lost"}}}};
    if (verb == "changes") {
      return {{"status", "Fail"}, {"cause", "attempt " + std::to_string(attempt_)}};
    }
    const bool fails = verb == "fail" || (verb == "once" && attempt_ == 1) ||
                       (verb == "after" && have_run(head_of(rest))) ||
                       (verb == "differs" && attempt_ == std::atoi(rest.c_str())) ||
                       (verb == "fails_but" && attempt_ != std::atoi(rest.c_str()));
    if (!fails) return {{"status", "Pass"}};
    const bool has_two = verb == "after" || verb == "differs" || verb == "fails_but";
    return {{"status", "Fail"}, {"message", "it fails"}, {"cause", has_two ? rest_of(rest) : rest}};
  }

  void end(json result, const std::string& verb) const {
    result["case"] = verb == "other" ? "stream.another" : id_;
    if (verb != "no_time") result["wall_ms"] = 1.5;
    const std::string bytes = encode(RecordType::kEnd, result);
    const bool is_cut = verb == "cut";
    static_cast<void>(
        write_all(kRecordFd, std::string_view(bytes).substr(0, bytes.size() / (is_cut ? 2 : 1))));
    if (is_cut) _exit(0);
  }

  std::string begin_, begin_text_;
  std::map<std::string, std::string> script_;
  std::string id_;
  int attempt_ = 0;
  std::set<std::string> done_;
};

}  // namespace

int run_scripted_worker(const std::string& setup_json) {
  const WorkerSetup setup = worker_setup_from_json(json::parse(setup_json), "the setup");
  divide_into_warden_and_worker(setup.parent);
  return ScriptedWorker(setup).serve();
}

}  // namespace bp::conformance
