#include "conformance/runner/session.hpp"

#include <algorithm>

#include "conformance/json_file.hpp"
#include "conformance/process/processor_wait.hpp"
#include "conformance/runner/describe.hpp"
#include "conformance/usage_error.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr double kPatienceSeconds = 30;  // The time limit for steps that do not depend on the
                                         // backend.
constexpr double kMostPatience = 9;  // A deadline is put off by at most this many times its length.

std::string seconds_text(double seconds) { return short_text(seconds) + " s"; }

// Returns the first line of the output, for a message.
std::string first_line(const std::string& output) {
  return clean_text(output.substr(0, output.find('\n')), LineBreaks::kEscape, 120);
}

// Returns the text at `key`; "" if there is none or it is not a text.
std::string text_at(const json& payload, const char* key) {
  const auto found = payload.find(key);
  const bool is_text = found != payload.end() && found->is_string();
  return is_text ? clean_text(found->get_ref<const std::string&>(), LineBreaks::kEscape) : "";
}

// Returns the lines at `key`; none if it is not a list of texts.
std::vector<std::string> lines_at(const json& payload, const char* key) {
  std::vector<std::string> lines;
  const auto found = payload.find(key);
  if (found == payload.end() || !found->is_array()) return lines;
  for (const json& line : *found) {
    if (!line.is_string()) return {};
    lines.push_back(clean_text(line.get_ref<const std::string&>(), LineBreaks::kKeep));
  }
  return lines;
}

// Returns what is wrong with a HELLO, or "". The backend shares the worker's process, so it may
// have sent the HELLO itself.
std::string hello_defect(json& hello, bool has_plugin) {
  try {
    check_description(hello, "HELLO");
    if (!has_plugin || hello.contains("error")) return "";
    const JsonObject told(hello, "HELLO");
    static_cast<void>(told.object("plugin"));
    static_cast<void>(told.list("targets"));
    return "";
  } catch (const UsageError& e) {
    return e.what();
  }
}

// Puts off the deadline of a case by the time in which the case was ready to run and had no
// processor, because other work had them all. A case that waits for something else gets no more.
class Patience {
 public:
  explicit Patience(pid_t worker) : worker_(worker), before_(seconds_without_processor(worker)) {}

  // Returns the seconds to put the deadline off, of which there are `most` in all; 0 for no more.
  double take(double most) {
    constexpr double kLeast = 0.1;
    const double due = std::min(seconds_without_processor(worker_) - before_, most) - taken_;
    if (due < kLeast) return 0;
    taken_ += due;
    return due;
  }

  // Returns a part of a message about a case that was too late.
  std::string text() const {
    if (taken_ == 0) return "";
    return ", without the " + seconds_text(taken_) + " in which other work had the processors";
  }

 private:
  pid_t worker_;
  double before_, taken_ = 0;
};

class Session {
 public:
  Session(const SessionOptions& options, const CaseList& cases, int attempt,
          const OnAttempt& on_attempt)
      : options_(options),
        cases_(cases),
        attempt_(attempt),
        on_attempt_(on_attempt),
        worker_(options.setup, options.interrupt_fd) {}

  BatchReport run(std::span<const size_t> batch) {
    if (!greet()) return std::move(report_);
    for (const size_t index : batch) {
      const Ended ended = run_one(index);
      if (ended != Ended::kWell) return std::move(report_);
      ++report_.finished_count;
      if (is_stopped_) break;
    }
    part();
    return std::move(report_);
  }

 private:
  enum class Ended { kWell, kBadly };

  static Clock::time_point after(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  Clock::time_point deadline() const { return after(options_.timeout_seconds); }
  // Cases of tier full have gigabytes of data, or programs of many steps.
  double seconds_of(const Case& which) const {
    constexpr double kPatience = 40;
    return options_.timeout_seconds * (which.tier == Tier::kFull ? kPatience : 1);
  }

  // Returns the cleaned output of the backend.
  std::string take_output(uint64_t& out_bytes) {
    const std::string raw = worker_.take_output(out_bytes);
    return clean_text(raw, LineBreaks::kKeep, raw.size());
  }

  // Describes how an unusable worker ended: the outcome and a message.
  Result describe_death(Waited waited, const std::string& where) {
    return describe_death(waited, where, options_.timeout_seconds);
  }
  Result describe_death(Waited waited, const std::string& where, double seconds) {
    const bool is_late = waited == Waited::kDeadline;
    // A worker that closed its pipe ends by itself; the wait gives it time to report how.
    const auto patience =
        waited == Waited::kGone ? std::chrono::seconds(2) : std::chrono::seconds(0);
    const ProcessEnd end = worker_.finish(Clock::now() + patience);
    report_.has_died = true;
    report_.is_abandoned = end.is_abandoned;
    Result result;
    if (is_late) {
      result.outcome = Outcome::kTimeout;
      result.cause = "timeout";
      result.message = "no end after " + seconds_text(seconds) + where;
      if (end.is_abandoned) result.message += "; " + end.text();
    } else {
      result.outcome = Outcome::kCrash;
      result.cause = waited == Waited::kBroken ? "protocol" : "crash";
      result.message = (waited == Waited::kBroken ? worker_.problem() : end.text()) + where;
    }
    if (!end.left_behind.empty()) {
      result.notes.push_back("the worker left " + end.left_behind + " behind; killed");
    }
    return result;
  }

  bool greet() {
    Record record;
    const Waited waited = worker_.wait(deadline(), record);
    if (waited == Waited::kInterrupted) return interrupt();
    if (waited != Waited::kRecord) {
      return fail_to_load(describe_death(waited, " while loading"));
    }
    report_.hello = record.payload;
    if (record.type != RecordType::kHello) {
      return fail_to_load({.outcome = Outcome::kCrash,
                           .message = "the worker did not begin with HELLO",
                           .cause = "protocol"});
    }
    const std::string defect = hello_defect(report_.hello, !options_.setup.plugin.empty());
    if (!defect.empty()) {
      report_.hello = json::object();
      return fail_to_load({.outcome = Outcome::kCrash,
                           .message = "the worker sent a HELLO that cannot be read: " + defect,
                           .cause = "protocol"});
    }
    if (report_.hello.contains("error")) {
      return fail_to_load(
          {.outcome = Outcome::kFail, .message = text_at(report_.hello, "error"), .cause = "load"});
    }
    uint64_t bytes = 0;
    const std::string output = take_output(bytes);
    report_.hello["output_bytes"] = bytes;
    report_.hello["output"] = output;
    return true;
  }

  bool fail_to_load(Result result) {
    uint64_t bytes = 0;
    const std::string output = worker_.take_output(bytes);
    if (bytes > 0) {
      result.notes.push_back("it printed " + std::to_string(bytes) +
                             " bytes while loading: " + first_line(output));
    }
    report_.load_failure = std::move(result);
    return false;
  }

  bool interrupt() {
    report_.is_interrupted = true;
    worker_.finish(Clock::now());
    return false;
  }

  Ended run_one(size_t index) {
    const Case& which = cases_[index];
    uint64_t bytes = 0;
    static_cast<void>(worker_.take_output(bytes));
    Attempt attempt;
    attempt.index = index;
    attempt.number = attempt_;
    attempt.pid = static_cast<int>(worker_.pid());

    // If the worker is gone, the next wait reports it.
    json request = {{"case", which.id}, {"seed", options_.seed}, {"attempt", attempt_}};
    if (!which.change.empty()) request["change"] = which.change;
    worker_.send(RecordType::kRun, request);
    std::string phase;
    bool has_begun = false;
    // Until BEGIN the worker does its own work; the deadline of the case starts at BEGIN.
    Clock::time_point limit = after(std::max(options_.timeout_seconds, kPatienceSeconds));
    Patience patience(worker_.pid());
    for (;;) {
      Record record;
      const Waited waited = worker_.wait(limit, record);
      if (waited == Waited::kDeadline && has_begun) {
        const double more = patience.take(kMostPatience * seconds_of(which));
        if (more > 0) {
          limit = after(more);
          continue;
        }
      }
      if (waited == Waited::kInterrupted) {
        interrupt();
        return Ended::kBadly;
      }
      if (waited != Waited::kRecord) {
        const std::string starved = waited == Waited::kDeadline ? patience.text() : "";
        return charge_death(waited, attempt, has_begun, phase, starved);
      }
      const std::string id = text_at(record.payload, "case");
      if (id != which.id) return charge_protocol(attempt, "a record for another case");
      if (record.type == RecordType::kBegin && !has_begun) {
        has_begun = true;
        limit = after(seconds_of(which));
      } else if (record.type == RecordType::kProgress && has_begun) {
        phase = text_at(record.payload, "phase");
      } else if (record.type == RecordType::kEnd && has_begun) {
        return take_end(attempt, record.payload);
      } else {
        return charge_protocol(attempt, "a record out of order");
      }
    }
  }

  Ended take_end(Attempt& attempt, const json& payload) {
    try {
      attempt.result = result_from_json(payload, "END");
      attempt.wall_ms = JsonObject(payload, "END").number("wall_ms", 0, kMostSeconds * 1e3);
      if (payload.contains("device_bytes")) {
        attempt.device_bytes = JsonObject(payload, "END").count("device_bytes", UINT64_MAX);
      }
      const auto dispatch = payload.find("dispatch");
      if (dispatch != payload.end()) {
        report_.dispatch = dispatch_counts_from_json(*dispatch, "END: dispatch");
      }
    } catch (const std::exception& e) {
      return charge_protocol(attempt, std::string("an END that cannot be read: ") + e.what());
    }
    attempt.output = take_output(attempt.output_bytes);
    if (attempt.output_bytes > 0 && count_of(attempt.result.outcome) != Count::kFailed) {
      attempt.result.outcome = Outcome::kFail;
      attempt.result.cause = "output";
      attempt.result.tag = "ENTRY-4";
      attempt.result.message = "wrote " + std::to_string(attempt.output_bytes) +
                               " bytes to standard streams: " + first_line(attempt.output);
    }
    last_ = attempt;
    // A lost device ends the batch: its other cases run in another process.
    const bool is_lost = attempt.result.details.contains(kLostDetail);
    is_stopped_ = !on_attempt_(attempt) || is_lost;
    return Ended::kWell;
  }

  Ended charge_protocol(Attempt& attempt, const std::string& problem) {
    worker_.finish(Clock::now());
    report_.has_died = true;
    attempt.result = {
        .outcome = Outcome::kCrash, .message = "the worker sent " + problem, .cause = "protocol"};
    return charge(attempt);
  }

  Ended charge_death(Waited waited, Attempt& attempt, bool has_begun, const std::string& phase,
                     const std::string& starved) {
    const bool is_last_ones = !has_begun && last_.has_value();
    std::string where = starved + (phase.empty() ? "" : ", in phase " + phase);
    if (is_last_ones) where = " after the end of the case";
    if (!has_begun && !last_) where = " before the first case began";
    Result result = describe_death(waited, where, seconds_of(cases_[attempt.index]));
    if (is_last_ones) {
      // The next case has not begun, so it runs again.
      last_->result = std::move(result);
      last_->is_after_end = true;
      last_->output = take_output(last_->output_bytes);
      on_attempt_(*last_);
      return Ended::kBadly;
    }
    if (!has_begun) {
      fail_to_load(std::move(result));
      return Ended::kBadly;
    }
    attempt.result = std::move(result);
    attempt.wall_ms = seconds_of(cases_[attempt.index]) * (waited == Waited::kDeadline ? 1e3 : 0);
    return charge(attempt);
  }

  Ended charge(Attempt& attempt) {
    if (!cases_[attempt.index].tags.empty()) {
      attempt.result.tag = cases_[attempt.index].tags.front();
    }
    attempt.output = take_output(attempt.output_bytes);
    ++report_.finished_count;
    on_attempt_(attempt);
    return Ended::kBadly;
  }

  // Ends the batch in order: the worker unloads the backend, and its process ends by itself.
  void part() {
    worker_.send(RecordType::kBye, json::object());
    Record record;
    const Waited waited = worker_.wait(deadline(), record);
    if (waited == Waited::kInterrupted) {
      interrupt();
      return;
    }
    if (waited != Waited::kRecord || record.type != RecordType::kBye) {
      report_.unload_failure = describe_death(waited, " while unloading");
      report_.has_died = false;  // Every case of the batch has ended already.
      return;
    }
    const std::vector<std::string> changes = lines_at(record.payload, "findings");
    if (!changes.empty()) {
      report_.unload_failure = {.outcome = Outcome::kFail,
                                .message = "while unloading, " + changes[0],
                                .cause = "hygiene",
                                .tag = "ENTRY-4"};
    }
    report_.idle_rules = lines_at(record.payload, "idle_rules");
    const std::vector<std::string> reports = lines_at(record.payload, "layer_reports");
    if (!reports.empty()) {
      report_.unload_failure = {
          .outcome = Outcome::kFail,
          .message = "while unloading, " + reports[0] +
                     (reports.size() == 1 ? ""
                                          : "; and " + std::to_string(reports.size() - 1) +
                                                " more reports of layers"),
          .cause = "layer"};
    }
    const Clock::time_point limit = deadline();
    const ProcessEnd end = worker_.finish(limit);
    if (!end.is_clean()) {
      report_.unload_failure = {
          .outcome = Clock::now() >= limit ? Outcome::kTimeout : Outcome::kCrash,
          .message = end.text() + " after unloading",
          .cause = "crash"};
    } else if (!end.left_behind.empty()) {
      report_.unload_failure = {
          .outcome = Outcome::kFail,
          .message = "the backend left " + end.left_behind + " behind at its end; killed",
          .cause = "left_behind",
          .tag = "ENTRY-6"};
    }
  }

  const SessionOptions& options_;
  const CaseList& cases_;
  int attempt_;
  const OnAttempt& on_attempt_;
  WorkerProcess worker_;
  BatchReport report_;
  std::optional<Attempt> last_;
  bool is_stopped_ = false;
};

}  // namespace

BatchReport run_batch(const SessionOptions& options, const CaseList& cases,
                      std::span<const size_t> batch, int attempt, const OnAttempt& on_attempt) {
  return Session(options, cases, attempt, on_attempt).run(batch);
}

}  // namespace bp::conformance
