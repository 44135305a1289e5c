// Calls that break the rules of the spec one at a time, made from legal ones.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/rules/spec_rules.hpp"

namespace bp::conformance {

// A legal call with one change, and the name of the change in messages.
struct Bend {
  std::string what;
  OpCase row;
  bool is_of_output = false;  // An output has another shape or dtype, and nothing else changed.
};

// Changes extents, ranks and dtypes of each tensor alone and of like ones together, the lengths of
// lists, attributes around their bounds, scalars to tensors, and leaves out optional tensors.
void for_each_bend(const OpCase& row, const std::function<void(Bend)>& visit);

// Tests a check with calls, beside the rules themselves. The check must refuse a call that breaks a
// rule, with a text that names the op, the fault and what is allowed. It must accept any other
// call.
class SpecTrial {
 public:
  // bp_op_check(), or a broken check for tests. `text` receives the text of a refusal.
  using Check = std::function<bp_status(const Frame& frame, std::string& text)>;

  SpecTrial(uint32_t op, Check check);

  // Tries every change of `row`. If a change breaks several rules, it also tries a call whose other
  // arguments follow the change, so that it breaks as few rules as possible.
  void run(const OpCase& row);

  const std::vector<std::string>& findings() const { return findings_; }
  size_t call_count() const { return calls_; }

  // Return the rules that no call has broken, and the rules that no call has broken alone.
  std::vector<const SpecRule*> untried() const { return missing(broken_); }
  std::vector<const SpecRule*> never_alone() const { return missing(alone_); }

 private:
  void try_bend(const Bend& bend);
  void judge(const Bend& bend, const Frame& frame);
  void judge_refusal(const std::string& at, const std::vector<SpecJudge::Breach>& breaches,
                     bp_status status, const std::string& text);
  bool repair(OpCase& row, std::string_view kept) const;
  std::vector<const SpecRule*> missing(const std::set<size_t>& found) const;

  uint32_t op_;
  SpecJudge judge_;
  Check check_;
  std::vector<std::string> findings_;
  std::set<size_t> broken_, alone_;
  size_t calls_ = 0;
};

}  // namespace bp::conformance
