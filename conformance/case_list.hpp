// All cases of the suite, and the index by id.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

class CaseList {
 public:
  // Sorts by (group, op, dtype), so that set-up and compiled kernels are shared. Throws
  // std::logic_error where two cases have one id, or one has no id or no body.
  explicit CaseList(std::vector<Case> cases);

  // Every case of the suite; the same list for every backend.
  static CaseList whole_suite();

  // The part of it that takes no time to make.
  static CaseList without_ops();

  const std::vector<Case>& cases() const { return cases_; }
  const Case& operator[](size_t index) const { return cases_[index]; }
  size_t size() const { return cases_.size(); }

  // NULL if there is none of this id.
  const Case* find(std::string_view id) const;

 private:
  std::vector<Case> cases_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace bp::conformance
