// All cases of the suite, and their index by id.
#pragma once

#include <deque>
#include <memory>
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
  // Sorts by (group, op, dtype), so that cases share set-up and compiled kernels. Throws
  // std::logic_error if two cases have one id, or if a case has no id or no body.
  explicit CaseList(std::vector<Case> cases);

  // The index refers to the ids in place. A move does not move the ids.
  CaseList(const CaseList&) = delete;
  CaseList(CaseList&&) = default;
  CaseList& operator=(CaseList&&) = default;

  // Returns every case of the suite. The list is the same for every backend. The first call makes
  // it, which takes long; the list lives as long as the process.
  static const CaseList& whole_suite();

  // Returns the cases that belong to no op, which take little time to make.
  static CaseList without_ops();

  // Returns only the cases of the suite with these ids. Unknown ids and repeated ids are left out.
  static CaseList of(const std::vector<std::string>& ids);

  // Returns only the cases of the suite that lie in these parts, and, if `has_others` is true,
  // those that belong to no op.
  static CaseList of(const std::set<OpPart>& parts, bool has_others);

  const std::vector<Case>& cases() const { return cases_; }
  const Case& operator[](size_t index) const { return cases_[index]; }
  size_t size() const { return cases_.size(); }

  // Returns NULL if no case has this id.
  const Case* find(std::string_view id) const;

 private:
  std::vector<Case> cases_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Cases that the holder may share with others.
using SharedCases = std::shared_ptr<const CaseList>;

// `cases` must live longer than the result.
inline SharedCases borrowed(const CaseList& cases) { return {std::shared_ptr<void>(), &cases}; }

// Finds cases of the suite by id. It makes only the parts of the suite that it needs, because most
// processes run the cases of a few ops.
class CaseFinder {
 public:
  // Returns NULL if no case has this id. The address of a case does not change.
  const Case* find(std::string_view id);

 private:
  const Case* find_made(std::string_view id) const;

  std::deque<CaseList> made_;
  std::set<OpPart> parts_;
};

}  // namespace bp::conformance
