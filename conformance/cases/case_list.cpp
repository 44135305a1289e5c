#include "conformance/cases/case_list.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "conformance/cases/families.hpp"

namespace bp::conformance {

CaseList::CaseList(std::vector<Case> cases) : cases_(std::move(cases)) {
  std::stable_sort(cases_.begin(), cases_.end(), [](const Case& a, const Case& b) {
    return std::tie(a.group, a.op, a.dtype) < std::tie(b.group, b.op, b.dtype);
  });
  for (size_t i = 0; i < cases_.size(); ++i) {
    if (cases_[i].id.empty() || !cases_[i].run) {
      throw std::logic_error("case \"" + cases_[i].id + "\" has no id or no body");
    }
    if (!index_.emplace(cases_[i].id, i).second) {
      throw std::logic_error("two cases have the id " + cases_[i].id);
    }
  }
}

const CaseList& CaseList::whole_suite() {
  static const auto* const made = [] {
    std::vector<Case> cases = without_ops().cases_;
    add_op_cases(cases);
    return new CaseList(std::move(cases));
  }();
  return *made;
}

CaseList CaseList::without_ops() {
  std::vector<Case> cases;
#define BP_FAMILY(name) add_##name##_cases(cases);
#include "conformance/cases/families.def"
#undef BP_FAMILY
  return CaseList(std::move(cases));
}

CaseList CaseList::of(const std::vector<std::string>& ids) {
  CaseFinder finder;
  std::vector<Case> cases;
  std::set<std::string_view> seen;
  for (const std::string& id : ids) {
    const Case* which = finder.find(id);
    if (which != nullptr && seen.insert(which->id).second) cases.push_back(*which);
  }
  return CaseList(std::move(cases));
}

CaseList CaseList::of(const std::set<OpPart>& parts, bool has_others) {
  std::vector<Case> cases;
  if (has_others) cases = without_ops().cases_;
  for (const OpPart& part : parts) add_op_part(cases, part);
  return CaseList(std::move(cases));
}

const Case* CaseList::find(std::string_view id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &cases_[found->second];
}

const Case* CaseFinder::find(std::string_view id) {
  if (made_.empty()) made_.push_back(CaseList::without_ops());
  if (const Case* which = find_made(id)) return which;
  for (const OpPart& part : parts_of(id)) {
    if (!parts_.insert(part).second) continue;
    std::vector<Case> cases;
    add_op_part(cases, part);
    made_.emplace_back(std::move(cases));
    if (const Case* which = made_.back().find(id)) return which;
  }
  // The id does not show which part of the suite it belongs to.
  return CaseList::whole_suite().find(id);
}

const Case* CaseFinder::find_made(std::string_view id) const {
  for (const CaseList& list : made_) {
    if (const Case* which = list.find(id)) return which;
  }
  return nullptr;
}

}  // namespace bp::conformance
