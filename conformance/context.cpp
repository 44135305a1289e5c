#include <stdexcept>

#include "conformance/case.hpp"

namespace bp::conformance {
namespace {

struct OutcomeRow {
  Outcome outcome;
  const char* name;
  Count count;
};
constexpr OutcomeRow kOutcomes[] = {
    {Outcome::kPass, "Pass", Count::kPassed},
    {Outcome::kQualityWarning, "QualityWarning", Count::kPassed},
    {Outcome::kCompatWarning, "CompatWarning", Count::kPassed},
    {Outcome::kNotSupported, "NotSupported", Count::kSkipped},
    {Outcome::kSkip, "Skip", Count::kSkipped},
    {Outcome::kFallback, "Fallback", Count::kSkipped},
    {Outcome::kWaived, "Waived", Count::kSkipped},
    {Outcome::kMissing, "Missing", Count::kFailed},
    {Outcome::kUnclaimed, "Unclaimed", Count::kFailed},
    {Outcome::kFail, "Fail", Count::kFailed},
    {Outcome::kCrash, "Crash", Count::kFailed},
    {Outcome::kTimeout, "Timeout", Count::kFailed},
    {Outcome::kDeviceLost, "DeviceLost", Count::kFailed},
    {Outcome::kResourceError, "ResourceError", Count::kFailed},
    {Outcome::kFlake, "Flake", Count::kFailed},
    {Outcome::kXPass, "XPass", Count::kFailed},
    {Outcome::kMistrusted, "Mistrusted", Count::kSkipped},
    {Outcome::kHarnessError, "HarnessError", Count::kFailed},
};

std::string joined(const std::vector<std::string>& tags) {
  std::string text;
  for (const std::string& tag : tags) text += (text.empty() ? "" : ", ") + tag;
  return text;
}

}  // namespace

const char* outcome_name(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)].name; }

bool outcome_from_name(std::string_view name, Outcome& out_outcome) {
  for (const OutcomeRow& row : kOutcomes) {
    if (name != row.name) continue;
    out_outcome = row.outcome;
    return true;
  }
  return false;
}

Count count_of(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)].count; }

// The hash is FNV-1a over the id, followed by the finisher of SplitMix64, so that close seeds give
// distant streams.
uint64_t case_seed(std::string_view id, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash += seed * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

std::vector<const bp_process_group_ops*> Context::process_groups() const {
  if (subject_.process_groups != nullptr) return {subject_.process_groups};
  std::vector<const bp_process_group_ops*> tables;
  for (uint64_t i = 0; i < bp_target_process_groups_count(&target()); ++i) {
    tables.push_back(bp_target_process_groups(&target(), i));
  }
  return tables;
}

void Context::expect_status(bp_status got, bp_status want, std::string_view what) {
  if (got == want) return;
  const auto text_of = [](bp_status status) {
    return std::to_string(status) + " (" + bp_status_name(status) + ")";
  };
  add(Finding{std::string(what) + ": got " + text_of(got) + ", expected " + text_of(want), "", ""});
}

void Context::expect_refused(bp_status status, bp_status want, std::string_view what) {
  const std::string text_of_call = bp_error_text();
  bp_error_clear();
  expect_status(status, want, what);
  if (status != BP_OK && text_of_call.empty()) {
    add(Finding{std::string(what) + ": the call failed without an error text", "", "ERROR-1"});
  }
}

void Context::require_ok(bp_status status, std::string_view what) {
  if (status == BP_OK) return;
  Finding finding{std::string(what) + ": " + bp_status_name(status) + ": " + bp_error_text(), "",
                  ""};
  bp_error_clear();
  const Outcome outcome = status == BP_DEVICE_LOST     ? Outcome::kDeviceLost
                          : status == BP_OUT_OF_MEMORY ? Outcome::kResourceError
                                                       : Outcome::kFail;
  end(outcome, std::move(finding));
}

Result run_case(const Case& which, Context& context) {
  Outcome outcome = Outcome::kPass;
  Finding end;
  try {
    which.run(context);
  } catch (const EndOfCase& thrown) {
    outcome = thrown.outcome;
    end = thrown.finding;
  } catch (const std::logic_error& e) {
    outcome = Outcome::kHarnessError;
    end = {std::string("the case is broken: ") + e.what(), "harness", ""};
  } catch (const std::exception& e) {
    outcome = Outcome::kFail;
    end = {std::string("ended by an exception: ") + e.what(), "exception", ""};
  } catch (...) {
    outcome = Outcome::kFail;
    end = {"ended by an exception that is not a std::exception", "exception", ""};
  }

  std::vector<Finding> findings = std::move(context.findings_);
  const bool is_excuse = outcome != Outcome::kPass && count_of(outcome) != Count::kFailed;
  if (is_excuse && !findings.empty()) {
    outcome = Outcome::kFail;  // Findings before the excuse still count.
  } else if (outcome != Outcome::kPass) {
    findings.insert(findings.begin(), end);
  } else if (!findings.empty()) {
    outcome = Outcome::kFail;
  } else if (!context.fallback_.empty()) {
    outcome = Outcome::kFallback;
    findings.push_back({"served by: " + context.fallback_, context.fallback_, ""});
  } else if (!context.warnings_.empty()) {
    outcome = Outcome::kQualityWarning;
  }

  Result result;
  result.outcome = outcome;
  if (!findings.empty()) {
    result.message = findings.front().message;
    result.cause = findings.front().cause;
    result.tag = findings.front().tag;
    for (size_t i = 1; i < findings.size(); ++i) {
      const Finding& also = findings[i];
      const bool has_own_tag = !also.tag.empty() && also.tag != result.tag;
      result.notes.push_back(also.message + (has_own_tag ? " [" + also.tag + "]" : ""));
    }
  }
  result.metrics = std::move(context.metrics_);
  result.details = std::move(context.details_);
  if (result.tag.empty() && !which.tags.empty()) {
    result.tag = which.tags.front();
    if (count_of(outcome) == Count::kFailed && which.tags.size() > 1) {
      result.details[kTagsDetail] = joined(which.tags);
    }
  }
  for (const std::string& warning : context.warnings_) {
    (result.message.empty() ? result.message : result.notes.emplace_back()) = warning;
  }
  return result;
}

}  // namespace bp::conformance
