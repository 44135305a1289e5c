// All cases of the suite, and the index by id.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/op_parts.hpp"

namespace bp::conformance {

class CaseList {
 public:
  // Sorts by (group, op, dtype), so that set-up and compiled kernels are shared. Throws
  // std::logic_error where two cases have one id, or one has no id or no body.
  explicit CaseList(std::vector<Case> cases);

  // The index refers to the ids in place, which stay where they are in a move.
  CaseList(const CaseList&) = delete;
  CaseList(CaseList&&) = default;
  CaseList& operator=(CaseList&&) = default;

  // Every case of the suite; the same list for every backend.
  static CaseList whole_suite();

  // The part of it that takes no time to make.
  static CaseList without_ops();

  // The cases of the suite with these ids alone. What is no case, and what is named again, is left
  // out.
  static CaseList of(const std::vector<std::string>& ids);

  const std::vector<Case>& cases() const { return cases_; }
  const Case& operator[](size_t index) const { return cases_[index]; }
  size_t size() const { return cases_.size(); }

  // NULL if there is none of this id.
  const Case* find(std::string_view id) const;

 private:
  std::vector<Case> cases_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Finds cases of the suite by id, and makes the parts of it that have been asked for: most
// processes run the cases of a few ops.
class CaseFinder {
 public:
  // NULL if there is none of this id. Cases stay where they are.
  const Case* find(std::string_view id);

 private:
  const Case* find_made(std::string_view id) const;

  std::deque<CaseList> made_;
  std::set<OpPart> parts_;
  bool is_whole_ = false;
};

}  // namespace bp::conformance
