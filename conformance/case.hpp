// A conformance case, the context in which it runs, and its outcome.
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

// The outcome of a case, in the order of the reports.
enum class Outcome {
  kPass,
  kQualityWarning,  // The behaviour is within the contract, but suspicious.
  kCompatWarning,   // The behaviour is likely to surprise portable code.
  kNotSupported,    // The feature is optional, not claimed, and refused cleanly.
  kSkip,            // The case did not run: the host lacks something, or the run ended before.
  kFallback,        // The results are right, but do not come from a kernel of the backend.
  kWaived,          // The case failed as the waivers predict.
  kMissing,         // A mandatory feature is missing.
  kUnclaimed,       // The feature works, but is not claimed.
  kFail,
  kCrash,
  kTimeout,
  kDeviceLost,
  kResourceError,  // Out of memory although the declared limits allow the allocation.
  kFlake,          // Two runs of one case and seed disagree.
  kXPass,          // The case is waived, but it passes.
  kMistrusted,     // The case proved too little: a defect of the suite.
  kHarnessError,   // The suite itself failed.
};

// Returns "Pass", "QualityWarning", ... outcome_from_name() does the reverse, and returns false if
// no outcome has the name.
const char* outcome_name(Outcome outcome);
bool outcome_from_name(std::string_view name, Outcome& out_outcome);

enum class Count { kPassed, kFailed, kSkipped };
Count count_of(Outcome outcome);

enum class Tier { kSmoke, kQuick, kFull };

class Context;

// One check that failed.
struct Finding {
  std::string message;  // The value that was found, and the right one.
  std::string cause;    // A word that groups failures: "values", "tail", "canary", ...
  std::string tag;      // The requirement that was broken, or "" for the first tag of the case.
};

struct OpCase;

struct Case {
  std::string id;                 // The id, which never changes: "stream.new_stream_is_idle".
  std::vector<std::string> tags;  // The requirements of the api headers that the case checks.
  Tier tier = Tier::kSmoke;       // The first tier that contains the case.
  std::string group;              // The group by which the verdict page counts: "stream",
                                  // "element-wise".
  uint32_t op = 0;                // A BP_OP_* id, or 0.
  std::string dtype;              // "f32", or "". If a device does not list the dtype, the case is
                                  // skipped.
  bool is_exclusive = false;      // The case needs the device alone.
  bool is_mandatory = true;       // A refusal is Missing if true, else NotSupported.
  std::function<void(Context&)> run;
  std::string change;  // JSON that says how the shapes and other properties differ from the suite's
                       // case; see shrink/.
  std::shared_ptr<const OpCase> op_case;  // The call that `run` launches, if the case is one call
                                          // of an op.
};

// The parts of a command line that a case may see.
struct CaseOptions {
  uint64_t canary_bytes = 4096;
  std::string poison = "nan";  // One of "nan", "ff" and "random".
  // A stream that is held goes on after this time, so that a launch that waits for it ends.
  uint64_t launch_patience_ms = 5000;
};

// The result of a case, with everything that its report needs.
struct Result {
  Outcome outcome = Outcome::kPass;
  std::string message;
  std::string cause;
  std::string tag;
  std::vector<std::string> notes;  // Further findings, and warnings.
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> details;
};

// The name of the detail that a result has if the device was lost.
constexpr const char* kLostDetail = "device";

// The name of the detail with all tags of a case that has several, if its finding names none. The
// requirement that was broken is one of these.
constexpr const char* kTagsDetail = "tags";

// The details that say more about a wrong result: what the values of the wrong elements have in
// common, where the elements lie, what the worst of them was computed from, and the call.
constexpr const char* kValueDetail = "value";
constexpr const char* kPlaceDetail = "place";
constexpr const char* kInputsDetail = "inputs";
constexpr const char* kCallDetail = "call";

// The name of the detail with the reasons for a fallback: a line for each kernel that was not
// taken.
constexpr const char* kWhyFallback = "why_fallback";

// What a case runs on: a device of a plugin, and how the plugin was loaded.
struct Subject {
  const bp_target* target = nullptr;
  bp_registry* registry = nullptr;
  std::string plugin;              // The path that bp_registry_load() received.
  std::vector<bp_option> options;  // The options of the backend.
  CaseOptions case_options;
  std::string layer_options;  // The options of the layers.
  // The process groups that are judged in place of the device's own, or NULL.
  const bp_process_group_ops* process_groups = nullptr;
};

// Returns `hash(case id, seed)`, from which all data of a case are made.
uint64_t case_seed(std::string_view id, uint64_t seed);

// Ends a case early; run_case() catches it. Cases throw it only through the Context.
struct EndOfCase {
  Outcome outcome;
  Finding finding;
};

// The context of a case: one device of one backend, and the functions that report findings.
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
  // Returns the tables of process groups that are judged; none if the device has none.
  std::vector<const bp_process_group_ops*> process_groups() const;
  const Subject& subject() const { return subject_; }
  const Case& this_case() const { return case_; }
  const CaseOptions& options() const { return subject_.case_options; }
  // Returns the seed of this case, which depends on its id.
  uint64_t seed() const { return seed_; }

  // Returns a recognisable non-NULL pointer, which shows whether a call left an out parameter
  // alone.
  template <typename T>
  T* sentinel() {
    return reinterpret_cast<T*>(&marker_);
  }

  // Makes a check; the case continues if it fails.
  void expect(bool holds, std::string_view what) {
    if (!holds) add(Finding{std::string(what), "", ""});
  }
  // A status is compared with a constant, such as BP_OK, and not with bp_status{BP_OK}: bp_status
  // is an integer like those of counts, and only the type of the constants says that both are
  // statuses.
  template <typename A, typename B>
  void expect_eq(const A& got, const B& want, std::string_view what) {
    if constexpr (std::is_same_v<B, decltype(BP_OK)>) {
      expect_status(got, want, what);
    } else if (!(got == want)) {
      add(Finding{std::string(what) + ": got " + text(got) + ", expected " + text(want), "", ""});
    }
  }

  // Compares statuses, and names them in the message.
  void expect_status(bp_status got, bp_status want, std::string_view what);

  // Requires that `status` is `want` and that the failing call left a text, and removes the text.
  void expect_refused(bp_status status, bp_status want, std::string_view what);

  // Adds a finding; the case continues.
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  // The functions from here end the case.
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

  // Records that something other than a kernel of the backend served the case: "decomposed" or
  // "host". If all its checks hold, the case is a Fallback and never a pass.
  void fallback(std::string_view source) { fallback_ = source; }

  // Adds a warning for behaviour that is within the contract but suspicious. The case passes and is
  // listed.
  void quality_warning(std::string_view what) { warnings_.emplace_back(what); }

  void metric(const std::string& name, double value) { metrics_[name] = value; }
  void detail(const std::string& name, std::string value) { details_[name] = std::move(value); }

  // Reports the current phase ("setup", "fill", "launch 3", "sync", "verify", "teardown"), which is
  // shown when the deadline passes.
  void progress(std::string_view phase) {
    if (progress_) progress_(part_ + std::string(phase));
  }
  // Begins a part of the case: its name stands before the phases that follow.
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

  // A stream writes these as letters, and bool as a number.
  template <typename T>
  static constexpr bool kIsByte =
      std::is_same_v<T, char> || std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char>;

  template <typename T>
  static std::string text(const T& value) {
    if constexpr (requires(std::ostream & out) { out << value; }) {
      std::ostringstream out;
      if constexpr (kIsByte<T>) {
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

// Runs the body of a case and makes a result of what it reported, threw and found. A
// std::logic_error is a defect of the suite, a HarnessError; any other exception is a fault of the
// backend.
Result run_case(const Case& which, Context& context);

}  // namespace bp::conformance
