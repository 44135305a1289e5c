#include "conformance/perf/perf_list.hpp"

#include <memory>

#include "conformance/perf/ceilings.hpp"
#include "conformance/perf/perf_case.hpp"
#include "conformance/perf/rows.hpp"

namespace bp::conformance {

CaseList perf_cases(const PerfOptions& options) {
  std::vector<Case> cases;
  add_ceiling_cases(cases, options);
  for (PerfCall& call : perf_calls()) {
    Case entry;
    entry.id = std::move(call.id);
    entry.tags = {"KERNEL-8", "KERNEL-9"};
    entry.group = std::move(call.group);
    entry.op = call.op_case.op;
    entry.dtype = call.op_case.dtype;
    entry.is_exclusive = true;
    entry.is_mandatory = false;
    const auto shared = std::make_shared<const OpCase>(std::move(call.op_case));
    entry.op_case = shared;
    entry.run = [shared, options](Context& t) { run_perf_case(t, *shared, options); };
    cases.push_back(std::move(entry));
  }
  return CaseList(std::move(cases));
}

}  // namespace bp::conformance
