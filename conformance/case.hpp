// A conformance case, the context it runs in, and the outcome it ends with.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backplane/host.h"

namespace bp::conformance {

// How a case ended. The order is that of the reports.
enum class Outcome {
  kPass,
  kQualityWarning,  // Within the contract, but suspicious.
  kCompatWarning,   // Likely to surprise portable code.
  kNotSupported,    // Optional, not claimed, and refused cleanly.
  kSkip,            // Not run: the host lacks something, or the run ended before.
  kFallback,        // Right, but not by a kernel of the backend.
  kWaived,          // Failed as the waivers predict.
  kMissing,         // Mandatory, and not provided.
  kUnclaimed,       // Works, but is not claimed.
  kFail,
  kCrash,
  kTimeout,
  kDeviceLost,
  kResourceError,  // Out of memory where the declared limits say that it fits.
  kFlake,          // Two runs of one case and seed disagree.
  kXPass,          // Waived, but it passes.
  kMistrusted,     // The case proved too little: a defect of the suite.
  kHarnessError,   // The suite itself broke.
};

// "Pass", "QualityWarning", ...; and back, false if there is none of this name.
const char* outcome_name(Outcome outcome);
bool outcome_from_name(std::string_view name, Outcome& out_outcome);

enum class Count { kPassed, kFailed, kSkipped };
Count count_of(Outcome outcome);

enum class Tier { kSmoke, kQuick, kFull };

class Context;

// One check that did not hold.
struct Finding {
  std::string message;  // What was found, and what is right.
  std::string cause;    // One word that groups failures: "values", "tail", "canary", ...
  std::string tag;      // The broken requirement, or "" for the first tag of the case.
};

struct OpCase;

struct Case {
  std::string id;                 // Stable: "stream.new_stream_is_idle".
  std::vector<std::string> tags;  // Requirements of the api headers that it checks.
  Tier tier = Tier::kSmoke;       // The first tier that contains it.
  std::string group;              // "stream"; "element-wise". What the verdict page counts by.
  uint32_t op = 0;                // A BP_OP_* id, or 0.
  std::string dtype;              // "f32", or "". A device that does not list it skips the case.
  bool is_exclusive = false;      // Needs the device alone.
  bool is_mandatory = true;       // A refusal is Missing, else it is NotSupported.
  std::function<void(Context&)> run;
  std::string
      change;  // JSON: the case has other shapes, ... than that of the suite, as shrink/ says.
  std::shared_ptr<const OpCase> op_case;  // What `run` runs, where that is one call of an op.
};

// The parts of a command line that a case may see.
struct CaseOptions {
  uint64_t canary_bytes = 4096;
  std::string poison = "nan";  // "nan", "ff" or "random".
};

// How a case ended, with everything that its report needs.
struct Result {
  Outcome outcome = Outcome::kPass;
  std::string message;
  std::string cause;
  std::string tag;
  std::vector<std::string> notes;  // Further findings and warnings.
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> details;
};

// The detail of a result behind which the device was lost.
constexpr const char* kLostDetail = "device";

// The detail that says why a call fell back: a line for each kernel that was not taken.
constexpr const char* kWhyFallback = "why_fallback";

// What a case runs on.
struct Subject {
  const bp_target* target = nullptr;
  bp_registry* registry = nullptr;
  std::string plugin;              // What bp_registry_load() took.
  std::vector<bp_option> options;  // The backend's.
  CaseOptions case_options;
  std::string layer_options;  // Of the layers of the run.
};

// `hash(case id, seed)`: what all data of a case are made from.
uint64_t case_seed(std::string_view id, uint64_t seed);

// Ends a case early; caught by run_case(). Cases throw it through the Context alone.
struct EndOfCase {
  Outcome outcome;
  Finding finding;
};

// What a case may touch: one device of one backend, and a place to report to.
class Context {
 public:
  using Progress = std::function<void(std::string_view phase)>;

  Context(const Subject& subject, const Case& which, uint64_t seed, Progress progress = nullptr)
      : subject_(subject),
        case_(which),
        seed_(case_seed(which.id, seed)),
        progress_(std::move(progress)) {}

  const bp_target& target() const { return *subject_.target; }
  bp_registry* registry() const { return subject_.registry; }
  const Subject& subject() const { return subject_; }
  const Case& this_case() const { return case_; }
  const CaseOptions& options() const { return subject_.case_options; }
  uint64_t seed() const { return seed_; }  // Of this case: depends on its id.

  // A recognisable non-NULL pointer, for checking that an out parameter was left alone.
  template <typename T>
  T* sentinel() {
    return reinterpret_cast<T*>(&marker_);
  }

  // A check that the case goes on after.
  void expect(bool holds, std::string_view what) {
    if (!holds) add(Finding{std::string(what), "", ""});
  }
  template <typename A, typename B>
  void expect_eq(const A& got, const B& want, std::string_view what) {
    if (got == want) return;
    add(Finding{std::string(what) + ": got " + text(got) + ", expected " + text(want), "", ""});
  }

  // Requires that `status` is `want` and that the failing call left a text, and takes the text.
  void expect_refused(bp_status status, bp_status want, std::string_view what);

  // A finding of its own; the case goes on.
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  // These end the case.
  void require(bool holds, std::string_view what) {
    if (!holds) fail(what);
  }
  void require_ok(bp_status status, std::string_view what);
  [[noreturn]] void fail(std::string_view message) { fail(Finding{std::string(message), "", ""}); }
  [[noreturn]] void fail(Finding finding) { end(Outcome::kFail, std::move(finding)); }
  [[noreturn]] void not_supported(std::string_view reason) {
    end(Outcome::kNotSupported, reason, "");
  }
  [[noreturn]] void missing(std::string_view reason) { end(Outcome::kMissing, reason, "missing"); }
  [[noreturn]] void skip(std::string_view reason) { end(Outcome::kSkip, reason, ""); }
  [[noreturn]] void unclaimed(std::string_view reason) {
    end(Outcome::kUnclaimed, reason, "unclaimed");
  }
  [[noreturn]] void mistrusted(std::string_view reason) {
    end(Outcome::kMistrusted, reason, "mistrusted");
  }

  // The case was served by something else than a kernel of the backend: "decomposed" or "host". If
  // all its checks hold it is a Fallback, and never a pass.
  void fallback(std::string_view source) { fallback_ = source; }

  // Within the contract, but suspicious: the case passes, and is listed.
  void quality_warning(std::string_view what) { warnings_.emplace_back(what); }

  void metric(const std::string& name, double value) { metrics_[name] = value; }
  void detail(const std::string& name, std::string value) { details_[name] = std::move(value); }

  // Says what the case does now ("setup", "fill", "launch 3", "sync", "verify", "teardown"). Shown
  // when its deadline passes.
  void progress(std::string_view phase) {
    if (progress_) progress_(part_ + std::string(phase));
  }
  // Which of its parts the case does from now on: what is said of phases begins with it.
  void begin_part(const std::string& part) { part_ = part + ": "; }

  bool has_failed() const { return !findings_.empty(); }

 private:
  friend Result run_case(const Case&, Context&);

  [[noreturn]] void end(Outcome outcome, Finding finding) {
    throw EndOfCase{outcome, std::move(finding)};
  }
  [[noreturn]] void end(Outcome outcome, std::string_view message, const char* cause) {
    end(outcome, Finding{std::string(message), cause, ""});
  }

  template <typename T>
  static std::string text(const T& value) {
    if constexpr (std::is_same_v<T, bp_status>) {
      return std::to_string(value) + " (" + bp_status_name(value) + ")";
    } else if constexpr (requires(std::ostream & out) { out << value; }) {
      std::ostringstream out;
      if constexpr (std::integral<T> && sizeof(T) == 1) {
        out << static_cast<int>(value);
      } else {
        out << value;
      }
      return out.str();
    } else {
      return "another value";
    }
  }

  const Subject& subject_;
  const Case& case_;
  uint64_t seed_;
  Progress progress_;
  std::string part_;
  std::vector<Finding> findings_;
  std::vector<std::string> warnings_;
  std::string fallback_;
  std::map<std::string, double> metrics_;
  std::map<std::string, std::string> details_;
  char marker_ = 0;
};

// Runs the body of a case and turns what it reported, threw and found into a result. A
// std::logic_error is a defect of the suite, a HarnessError; any other exception is the backend's.
Result run_case(const Case& which, Context& context);

}  // namespace bp::conformance
