#include "conformance/shrink/shrinker.hpp"

#include <stdexcept>

#include "conformance/json_file.hpp"
#include "conformance/shrink/candidates.hpp"
#include "conformance/shrink/changed_case.hpp"

namespace bp::conformance {
namespace {

// Returns "launch" for "died of signal 11 (SIGSEGV), in phase launch 2"; "" if the process did not
// die.
std::string phase_of(const Result& result) {
  const std::string mark = "in phase ";
  const size_t at = result.message.rfind(mark);
  if (at == std::string::npos) return "";
  const std::string phase = result.message.substr(at + mark.size());
  return phase.substr(0, phase.find_first_of(" ;\n"));
}

// Returns whether wrong values are the only thing that the cause tells. A smaller call shows less
// of the place where they lie, so its cause may be another one of these.
bool is_of_values(const std::string& cause) {
  return cause == "values" || cause == "nan" || cause == "tail";
}

}  // namespace

OpCase shrink_call(OpCase failing, size_t max_steps, const FindFailing& find_failing) {
  for (size_t step = 0; step < max_steps; ++step) {
    std::vector<OpCase> candidates = simpler_calls(failing);
    const std::optional<size_t> found = find_failing(candidates);
    if (!found) break;
    failing = std::move(candidates[*found]);
  }
  return failing;
}

bool is_same_failure(const Result& first, const Result& result) {
  const bool has_same_cause =
      first.cause == result.cause || (is_of_values(first.cause) && is_of_values(result.cause));
  if (first.outcome != result.outcome || !has_same_cause) return false;
  const bool is_death = first.outcome == Outcome::kCrash || first.outcome == Outcome::kTimeout;
  return !is_death || phase_of(first) == phase_of(result);
}

Case ChangedRuns::make(const OpCase& call, size_t number, bool wants_program) const {
  nlohmann::json change = describe_call(call);
  change["case"] = base_.id;
  if (wants_program) change["wants_program"] = true;
  Case made = base_;
  made.id += "/" + std::to_string(number);
  made.change = json_text(change);
  return made;
}

BatchReport ChangedRuns::run_all(const CaseList& cases, const std::vector<size_t>& batch,
                                 const OnAttempt& on_attempt) {
  BatchReport report = run_batch(session_, cases, batch, 1, [&](const Attempt& attempt) {
    ++run_count_;
    return on_attempt(attempt);
  });
  is_interrupted_ = is_interrupted_ || report.is_interrupted;
  if (report.load_failure) {
    throw std::runtime_error("the backend does not load any more: " + report.load_failure->message);
  }
  return report;
}

Result ChangedRuns::run_alone(Case which) {
  std::vector<Case> one;
  one.push_back(std::move(which));
  const CaseList cases(std::move(one));
  Result result{.outcome = Outcome::kSkip};
  run_all(cases, {0}, [&](const Attempt& attempt) {
    result = attempt.result;
    return true;
  });
  return result;
}

Result ChangedRuns::run_base() { return run_alone(base_); }

Result ChangedRuns::run(const OpCase& call) { return run_alone(make(call, 0, false)); }

std::optional<size_t> ChangedRuns::find_failing(const std::vector<OpCase>& calls,
                                                const Result& failure) {
  std::vector<Case> made;
  for (size_t i = 0; i < calls.size(); ++i) made.push_back(make(calls[i], i, false));
  const CaseList cases(std::move(made));  // All cases have one op and dtype, so the list keeps
                                          // their order.
  std::optional<size_t> found;
  for (size_t next = 0; next < cases.size() && !found && !is_interrupted_;) {
    std::vector<size_t> batch;
    for (size_t i = next; i < cases.size(); ++i) batch.push_back(i);
    const BatchReport report = run_all(cases, batch, [&](const Attempt& attempt) {
      if (is_same_failure(failure, attempt.result)) found = attempt.index;
      return !found;
    });
    if (report.finished_count == 0) break;
    next += report.finished_count;
  }
  return found;
}

std::string ChangedRuns::program_of(const OpCase& call) {
  const Result result = run_alone(make(call, 0, true));
  const auto program = result.details.find("program");
  if (program == result.details.end()) {
    throw std::runtime_error("no program could be written: " + result.message);
  }
  return program->second;
}

}  // namespace bp::conformance
