// Finds the smallest call that still fails as a given call does.
#pragma once

#include <functional>
#include <optional>

#include "conformance/cases/case_list.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/runner/session.hpp"

namespace bp::conformance {

// Returns the index of the first of `candidates` that still fails, or nothing.
using FindFailing = std::function<std::optional<size_t>(const std::vector<OpCase>& candidates)>;

// Takes the first simpler call that still fails, until none fails or `max_steps` were taken.
OpCase shrink_call(OpCase failing, size_t max_steps, const FindFailing& find_failing);

// Returns whether `result` is the same failure as `first`: outcome, cause and, if the process died,
// the phase. Causes that tell of wrong values alone count as one.
bool is_same_failure(const Result& first, const Result& result);

// Runs changed calls of one case in workers.
class ChangedRuns {
 public:
  ChangedRuns(const SessionOptions& session, const Case& base) : session_(session), base_(base) {}

  // Runs the case of the suite alone in a fresh worker.
  Result run_base();

  // Runs one changed call alone in a fresh worker.
  Result run(const OpCase& call);

  // Runs many calls in turn, in as few workers as possible. Returns nothing if none fails as
  // `failure` does.
  std::optional<size_t> find_failing(const std::vector<OpCase>& calls, const Result& failure);

  // Returns the program that repeats `call` without the suite. Throws std::runtime_error.
  std::string program_of(const OpCase& call);

  size_t run_count() const { return run_count_; }
  bool is_interrupted() const { return is_interrupted_; }

 private:
  Case make(const OpCase& call, size_t number, bool wants_program) const;
  BatchReport run_all(const CaseList& cases, const std::vector<size_t>& batch,
                      const OnAttempt& on_attempt);
  Result run_alone(Case which);

  const SessionOptions& session_;
  const Case& base_;
  size_t run_count_ = 0;
  bool is_interrupted_ = false;
};

}  // namespace bp::conformance
