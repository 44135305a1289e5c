#include "conformance/case_list.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

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

CaseList CaseList::whole_suite() {
  std::vector<Case> cases = without_ops().cases_;
  add_op_cases(cases);
  return CaseList(std::move(cases));
}

CaseList CaseList::without_ops() {
  std::vector<Case> cases;
  add_abi_cases(cases);
  add_load_cases(cases);
  add_device_cases(cases);
  add_memory_cases(cases);
  add_stream_cases(cases);
  add_event_cases(cases);
  return CaseList(std::move(cases));
}

const Case* CaseList::find(std::string_view id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &cases_[found->second];
}

}  // namespace bp::conformance
